-- history_delete: deletes products from one owner's list, after the database did.
--
-- KEYS: 1 views, 2 deleted, 3 marker, 4 count, 5 active: see history_view.lua
-- ARGV: 1 lifetime of the keys in milliseconds, 2 maximum views, 3 owner, 4 lifetime of the set of active owners in
--       milliseconds, 5 time up to which deletions are forgotten, in milliseconds since the Unix epoch,
--       then for each deletion: the time up to which views are removed, SKU
--
-- Returns how many views were removed. A view that is newer than its deletion stays.

local cleared, loaded, generation = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+) (%l) (%S+)$')
local was_full = redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2])
local gone = 0
for i = 6, #ARGV, 2 do
  local at, sku = tonumber(ARGV[i]), ARGV[i + 1]
  local seen = redis.call('ZSCORE', KEYS[1], sku)
  if seen and tonumber(seen) <= at then
    gone = gone + redis.call('ZREM', KEYS[1], sku)
  end
  if at > tonumber(cleared or 0) then redis.call('ZADD', KEYS[2], 'GT', ARGV[i], sku) end
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[5])
-- A full list may have dropped views that the cold store still contains. It has room for them again.
if was_full and gone > 0 and loaded == 'a' then redis.call('SET', KEYS[3], cleared .. ' r ' .. generation) end
redis.call('DEL', KEYS[4])
-- The marker first: see history_view.lua.
for _, k in ipairs({ 3, 1, 2 }) do redis.call('PEXPIRE', KEYS[k], ARGV[1]) end
if redis.call('SADD', KEYS[5], ARGV[3]) == 1 then redis.call('PEXPIRE', KEYS[5], ARGV[4]) end
return gone
