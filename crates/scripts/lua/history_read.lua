-- history_read: one owner's list, or how long it is.
--
-- KEYS: 1 views, 2 marker, 3 count: see history_view.lua
-- ARGV: none for the list; for the count: 1 a name for the promise to count, 2 how long it holds, in milliseconds
--
-- Returns:
--   number               the count, if one is known
--   {loaded, {SKU, …}}   what is loaded (see history_fill.lua), and SKU, time, SKU, time, …, the newest first
--
-- Whoever finds no count promises one: history_count.lua takes it if the list has not changed since.

if ARGV[1] then
  local count = redis.call('GET', KEYS[3])
  if not count then
    redis.call('SET', KEYS[3], '?' .. ARGV[1], 'PX', ARGV[2])
  elseif string.find(count, '^%d') then
    return tonumber(count)
  end
end
local loaded = string.match(redis.call('GET', KEYS[2]) or '', '%l$')
return { loaded or 'n', redis.call('ZRANGE', KEYS[1], 0, -1, 'REV', 'WITHSCORES') }
