-- link_read: a short link is asked for.
--
-- KEYS: 1 record ("<life_ms> <max_clicks> <json>"), 2 clicks (integer: how many were used)
-- ARGV: 1 renew_permille, 2 count (1: this is a click, 0: somebody only looks)
--
-- Returns:
--   null                  there is no such link
--   {record, pttl, left}  pttl: milliseconds of life left, after this, or -1 without an end
--                         left: clicks that were left before this one, or -1 without a maximum
--
-- A link with a maximum gives one click away if this is one and any is left. A link with a life lives on
-- for all of it if more than renew_permille thousandths of it are gone; but not if it has no clicks left,
-- nor a disabled one, whose numbers are 0.

local record = redis.call('GET', KEYS[1])
if not record then return false end
local life, max = string.match(record, '^(%d+) (%d+) ')
local pttl = redis.call('PTTL', KEYS[1])
-- What is no record is for the reader to refuse.
if not life then return { record, pttl, -1 } end
-- Whole in Lua, and for Redis: nobody lives to see the difference.
life, max = math.min(tonumber(life), 2 ^ 52), math.min(tonumber(max), 2 ^ 52)

local left, is_click = -1, false
if max > 0 then
  left = math.max(max - tonumber(redis.call('GET', KEYS[2]) or 0), 0)
  is_click = left > 0 and ARGV[2] == '1'
end
if life > 0 and left ~= 0 and life - pttl > life * tonumber(ARGV[1]) / 1000 then
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', life))
  pttl = life
  if not is_click then redis.call('PEXPIRE', KEYS[2], string.format('%.0f', life)) end
end
if is_click then
  redis.call('INCR', KEYS[2])
  -- What counts a link's clicks must not end before the link, nor stay behind.
  if pttl >= 0 then redis.call('PEXPIRE', KEYS[2], string.format('%.0f', pttl)) end
end
return { record, pttl, left }
