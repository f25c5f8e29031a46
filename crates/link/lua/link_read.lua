-- link_read: a short link is asked for.
--
-- KEYS: 1 record ("<life_ms> <max_clicks> <json>"), 2 clicks (integer: how many were used),
--       3 for a click only: its mark (clicks that were left before it, or "back" if it was given back)
-- ARGV: 1 renew_permille, 2 purpose: look (nothing changes), renew (its life goes on), click (and one click is used),
--       3 for a click only: how long its mark is kept, in milliseconds
--
-- Returns:
--   null                  there is no such link
--   {record, pttl, left}  pttl: milliseconds of life left, after this, or -1 without an end
--                         left: clicks that were left before this one, or -1 without a maximum
--
-- A link with a maximum gives one click away if this is a click and any is left. The mark makes that idempotent: the same
-- click, asked for again, uses no other one and is told the same; one that was given back uses none. A link with a life
-- lives on for all of it if more than renew_permille thousandths of it are gone; but not for a look, nor if it has no
-- clicks left, nor if it is disabled, when its numbers are 0.

local record = redis.call('GET', KEYS[1])
if not record then return false end
local life, max = string.match(record, '^(%d+) (%d+) ')
local pttl = redis.call('PTTL', KEYS[1])
-- What is no record is for the reader to refuse.
if not life then return { record, pttl, -1 } end
-- Whole in Lua, and for Redis: nobody lives to see the difference.
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
  -- What counts a link's clicks must not end before the link, nor stay behind.
  if pttl >= 0 then redis.call('PEXPIRE', KEYS[2], string.format('%.0f', pttl)) end
  redis.call('SET', KEYS[3], string.format('%.0f', left), 'PX', ARGV[3])
end
return { record, pttl, left }
