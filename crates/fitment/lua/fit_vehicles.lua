-- fit_vehicles: reads the part of the vehicle map that a gateway lacks.
--
-- KEYS: 1 head ("<generation> <count> <stamp>"), 2 the block in which the gateway's map ends, of the gateway's generation
--         (string: IDs of four bytes, big-endian, in the order of offsets; 0 is a retired vehicle)
-- ARGV: 1 the gateway's generation, 0 for none, 2 the end of its map in that block, in bytes, 3 maximum bytes
--
-- Returns null if there is no map, or {generation, count, stamp, bytes}. `bytes` is empty if the generation differs: the
-- gateway then starts with the first block of the new generation. The stamp changes when pages of fit_browse.lua become
-- stale.

local generation, count, stamp = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (%d+) (%d+)$')
if not generation then return false end
local bytes = ''
if generation == ARGV[1] then
  bytes = redis.call('GETRANGE', KEYS[2], ARGV[2], tonumber(ARGV[2]) + tonumber(ARGV[3]) - 1)
end
return { tonumber(generation), tonumber(count), tonumber(stamp), bytes }
