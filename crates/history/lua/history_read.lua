-- history_read: reads one owner's list, or its length.
--
-- KEYS: 1 views, 2 marker, 3 count: see history_view.lua
-- ARGV: 1 a name for the generation of a list without one, 2 lifetime of its marker in milliseconds;
--       only to count: 3 a name for a reservation of the count, 4 lifetime of the reservation in milliseconds
--
-- Returns:
--   number                           the count, if ARGV[3] is given and the count is stored
--   {loaded, generation, {SKU, …}}   what is loaded and the list's generation (see history_fill.lua); then SKU, time, SKU,
--                                    time, …, the newest first
--
-- A caller that finds no count reserves it. history_count.lua accepts the count if the list has not changed since.
--
-- A generation begins with the first eight digits of the `run_id` of this Redis process. A list with another `run_id` was
-- loaded from a file or replicated from a master. Its latest removals may be missing, so it counts as not loaded.

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
