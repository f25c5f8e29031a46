-- history_read: one owner's list, or how long it is.
--
-- KEYS: 1 views, 2 marker, 3 count: see history_view.lua
-- ARGV: 1 a name for a list that has no generation, 2 how long its marker lives, in milliseconds;
--       for the count: 3 a name for the promise to count, 4 how long it holds, in milliseconds
--
-- Returns:
--   number                           the count, if one is known
--   {loaded, generation, {SKU, …}}   what is loaded and of which generation the list is (see history_fill.lua), and SKU, time,
--                                    SKU, time, …, the newest first
--
-- Whoever finds no count promises one: history_count.lua takes it if the list has not changed since.
--
-- A generation begins with what this Redis is called until it ends (run_id). One of another process was read from a file, or came
-- from a master: what it says is loaded may lack the latest removals, so nothing is loaded.

local run = string.sub(string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or '', 1, 8) .. '.'
local cleared, loaded, generation = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) (%l) (%S+)$')
if cleared and generation ~= '-' and string.sub(generation, 1, #run) ~= run then
  loaded, generation = 'n', '-'
  redis.call('DEL', KEYS[3])
end
if ARGV[3] then
  local count = redis.call('GET', KEYS[3])
  if not count then
    redis.call('SET', KEYS[3], '?' .. ARGV[3], 'PX', ARGV[4])
  elseif string.find(count, '^%d') then
    return tonumber(count)
  end
end
if not cleared then
  loaded, generation = 'n', run .. ARGV[1]
  redis.call('SET', KEYS[2], '0 n ' .. generation, 'PX', ARGV[2])
elseif generation == '-' then
  generation = run .. ARGV[1]
  redis.call('SET', KEYS[2], cleared .. ' ' .. loaded .. ' ' .. generation, 'KEEPTTL')
end
return { loaded, generation, redis.call('ZRANGE', KEYS[1], 0, -1, 'REV', 'WITHSCORES') }
