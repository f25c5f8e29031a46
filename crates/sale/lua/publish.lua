-- publish: gives gateways a catalogue, unless they have a later one.
--
-- KEYS: 1 catalogue
-- ARGV: 1 version, 2 the catalogue, as JSON that begins with its version
--
-- Returns 1 if it did, 0 if a later one is there.

local there = string.match(redis.call('GET', KEYS[1]) or '', '^{"version":(%d+),')
if there and tonumber(there) > tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
