-- fit_vehicles: the map of vehicles, and what of it a gateway has not.
--
-- KEYS: 1 head ("<generation> <count> <stamp>"), 2 the block in which the gateway's map ends (string: ids of four bytes, the
--         highest first, in the order of offsets; 0 is a vehicle that was retired), of the generation that it knows
-- ARGV: 1 the generation that the gateway knows, 0 for none, 2 where its map ends in that block, in bytes, 3 the most bytes
--
-- Returns null if there is no map, or {generation, count, stamp, bytes}. If the generation is another one, there are no bytes:
-- the gateway begins again with the first block of that generation. The stamp changes whenever pages of fit_browse.lua are stale.

local generation, count, stamp = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (%d+) (%d+)$')
if not generation then return false end
local bytes = ''
if generation == ARGV[1] then
  bytes = redis.call('GETRANGE', KEYS[2], ARGV[2], tonumber(ARGV[2]) + tonumber(ARGV[3]) - 1)
end
return { tonumber(generation), tonumber(count), tonumber(stamp), bytes }
