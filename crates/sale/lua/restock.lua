-- restock: repairs the stock after data loss, if the shard has not changed since an audit.
--
-- KEYS: 1 stock, 2 epoch, 3 sequence, 4 sums (see shard.lua)
-- ARGV: 1 units to add to the stock; negative: to remove; 2 epoch, 3 sequence and 4 version at the audit
--
-- Returns 1 if the stock was changed; 0 if the shard has changed since, is cold, or has fewer units than to be removed. A
-- repeated call returns 0, because the version has changed.

local shard = load(KEYS[1], KEYS[2], KEYS[4])
if not shard then return 0 end
if number(shard.epoch) ~= ARGV[2] or (redis.call('GET', KEYS[3]) or '0') ~= ARGV[3]
  or number(shard.version) ~= ARGV[4] then
  return 0
end
local units = tonumber(ARGV[1])
if units <= 0 and shard.stock + units < 0 then return 0 end
change_stock(shard, units)
shard.version = shard.version + 1
save(shard)
return 1
