-- publish: publishes a catalogue for gateways, unless a later one exists.
--
-- KEYS: 1 catalogue
-- ARGV: 1 version, 2 the catalogue, as JSON that begins with its version
--
-- Returns 1 if it was published, 0 if a later one exists.

local there = string.match(redis.call('GET', KEYS[1]) or '', '^{"version":(%d+),')
if there and tonumber(there) > tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
