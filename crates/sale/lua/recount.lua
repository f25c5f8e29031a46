-- recount: replaces a shard's sums, if nothing has changed since the caller computed them.
--
-- KEYS: 1 stock, 2 epoch, 3 sums (see shard.lua)
-- ARGV: 1 version at that time, 2 open, 3 held, 4 bought, 5 deferred, 6 checksum
--
-- Returns 1 if the sums were replaced, else 0. Only for a shard that has lost a key.

local shard = load(KEYS[1], KEYS[2], KEYS[3])
if not shard or number(shard.version) ~= ARGV[1] then return 0 end
shard.version = shard.version + 1
shard.open, shard.held = tonumber(ARGV[2]), tonumber(ARGV[3])
shard.bought, shard.deferred, shard.checksum = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
save(shard)
return 1
