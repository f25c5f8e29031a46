-- wipe: starts the rebuild of a cold shard, and deletes its claims, orders and transfers.
--
-- KEYS: 1 stock, 2 epoch, 3 sums (see shard.lua), 4 rebuild, 5 claims, 6 pending, 7 transfers, 8 deposits, 9 bought
-- ARGV: 1 token of the origin that rebuilds, 2 lease_ms: time without progress after which another origin may take over,
--       3 number of buckets
--
-- `rebuild` is "<token> <until_us> <lease_ms>". If several origins find a shard cold, one of them rebuilds it. The scripts
-- refuse the calls of an earlier rebuild, so an origin never deletes what another restores.
--
-- Returns 1 if the rebuild has started, 0 if the shard is not cold, 2 if another origin rebuilds it.

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
