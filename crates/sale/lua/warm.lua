-- warm: loads units on a cold shard, which is then in use.
--
-- KEYS: 1 stock, 2 epoch, 3 sums (see shard.lua), 4 rebuild (see wipe.lua)
-- ARGV: 1 units, 2 the token of the rebuild that this call finishes, or `-` if the shard was never in use
--
-- Returns 1 if the units were loaded. Returns 0 if the shard has stock already or another origin rebuilds it: nothing
-- changed, so a repeated call never creates units.

local shard = load(KEYS[1], KEYS[2], KEYS[3])
if shard then return 0 end
local rebuild = redis.call('GET', KEYS[4])
if ARGV[2] == '-' then
  if rebuild then return 0 end
elseif not rebuild or string.match(rebuild, '^%S+') ~= ARGV[2] then
  return 0
end
-- The sums already contain the orders that a rebuild has restored.
local fresh = { version = 0, open = 0, held = 0, bought = 0, deferred = 0, checksum = 0 }
read_sums(fresh, redis.call('GET', KEYS[3]))
fresh.keys, fresh.stock = { KEYS[1], KEYS[2], KEYS[3] }, tonumber(ARGV[1])
fresh.version = fresh.version + 1
fresh.epoch = next_after(tonumber(redis.call('GET', KEYS[2])) or 0)
save(fresh)
redis.call('DEL', KEYS[4])
return 1
