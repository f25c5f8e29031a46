-- link_read: reads a short link.
--
-- KEYS: 1 record ("<life_ms> <max_clicks> <json>"), 2 clicks (integer: how many were used),
--       3 for a click only: its mark (clicks that were left before it, or "back" if link_back.lua returned it)
-- ARGV: 1 renew_permille, 2 purpose: look (changes nothing), renew (renews its life), click (also uses one click),
--       3 for a click only: lifetime of its mark in milliseconds
--
-- Returns:
--   null                  there is no such link
--   {record, pttl, left}  pttl: milliseconds of life left after this call, or -1 without an end
--                         left: clicks that were left before this one, or -1 without a maximum
--
-- With purpose click, a link with a maximum uses one click if any is left. The mark makes this idempotent: the same click
-- uses no further one and gets the same reply. A returned click uses none. The script renews a link's life if more than
-- renew_permille thousandths of it are over. It does not renew on a look, without clicks left, or if the link has no life,
-- as a disabled one, whose numbers are 0.

local record = redis.call('GET', KEYS[1])
if not record then return false end
local life, max = string.match(record, '^(%d+) (%d+) ')
local pttl = redis.call('PTTL', KEYS[1])
-- The caller refuses an invalid record.
if not life then return { record, pttl, -1 } end
-- Limits both to 2^52, which Lua and Redis represent exactly.
life, max = math.min(tonumber(life), 2 ^ 52), math.min(tonumber(max), 2 ^ 52)

local left, is_used = -1, false
if max > 0 then
  left = math.max(max - tonumber(redis.call('GET', KEYS[2]) or 0), 0)
  if ARGV[2] == 'click' then
    local mark = redis.call('GET', KEYS[3])
    if not mark then
      is_used = left > 0
    elseif mark ~= 'back' then
      left = tonumber(mark)
    end
  end
end
if ARGV[2] ~= 'look' and life > 0 and left ~= 0 and life - pttl > life * tonumber(ARGV[1]) / 1000 then
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', life))
  pttl = life
  if not is_used then redis.call('PEXPIRE', KEYS[2], string.format('%.0f', life)) end
end
if is_used then
  redis.call('INCR', KEYS[2])
  -- The counter of clicks expires together with the link.
  if pttl >= 0 then redis.call('PEXPIRE', KEYS[2], string.format('%.0f', pttl)) end
  redis.call('SET', KEYS[3], string.format('%.0f', left), 'PX', ARGV[3])
end
return { record, pttl, left }
