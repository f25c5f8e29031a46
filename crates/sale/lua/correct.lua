-- correct: writes a user's orders as SQL knows them, where Redis knows them otherwise: it has lost data.
--
-- KEYS: 1 stock, 2 claims, 3 epoch, 4 sums, 5 bought (see shard.lua, record.lua)
-- ARGV: 1 user, 2 bucket, 3 orders as Redis was seen to know them, 4 orders as SQL does; `-`: none
--
-- Returns 1 if it did; 0 if the user holds a claim, has other orders than were seen, or the shard is cold: nothing
-- changed. No unit comes or goes: what is missing, or too much, the reconciler finds in the sum of all.

local shard = load(KEYS[1], KEYS[3], KEYS[4])
if not shard or redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return 0 end
local r = with_orders(redis.call('HGET', KEYS[5] .. ':' .. ARGV[2], ARGV[1]))
if r.orders ~= ARGV[3] then return 0 end
count_orders(shard, ARGV[3], -1)
count_orders(shard, ARGV[4], 1)
r.orders = ARGV[4]
shard.version = shard.version + 1
keep(KEYS[2], KEYS[5], ARGV[1], ARGV[2], r)
save(shard)
return 1
