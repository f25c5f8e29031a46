-- wipe: begins the rebuild of a cold shard: forgets all claims, orders and transfers of it.
--
-- KEYS: 1 stock, 2 epoch, 3 sums (see shard.lua), 4 rebuild, 5 claims, 6 pending, 7 transfers, 8 deposits, 9 bought
-- ARGV: 1 token: who rebuilds, 2 lease_ms: for how long nobody else may, unless something is restored meanwhile,
--       3 buckets
--
-- `rebuild` is "<token> <until_us> <lease_ms>". Of several origins that find a shard cold one rebuilds it: whatever
-- another has begun before it is refused, so none wipes what another restores.
--
-- Returns 1 if it has begun, 0 if the shard is not cold, 2 if another is at it.

if load(KEYS[1], KEYS[2], KEYS[3]) then return 0 end
local rebuild = redis.call('GET', KEYS[4])
if rebuild then
  local token, until_us = string.match(rebuild, '^(%S+) (%d+) ')
  if token and token ~= ARGV[1] and tonumber(until_us) > now_us() then return 2 end
end
local gone = { KEYS[1], KEYS[3], KEYS[5], KEYS[6], KEYS[7], KEYS[8] }
for bucket = 0, tonumber(ARGV[3]) - 1 do gone[#gone + 1] = KEYS[9] .. ':' .. number(bucket) end
redis.call('UNLINK', unpack(gone))
redis.call('SET', KEYS[4], ARGV[1] .. ' ' .. number(now_us() + ARGV[2] * 1000) .. ' ' .. ARGV[2])
return 1
