-- fit_vehicles_put: appends vehicles to the map, or writes a new map.
--
-- KEYS: 1 head ("<generation> <count> <stamp>"), 2 the block to write: see fit_vehicles.lua
-- ARGV: 1 generation, 2 position in the block, in bytes, 3 IDs of four bytes each, 4 number of vehicles after this call, or
--         empty: the head does not change, because more blocks follow, 5 stamp
--
-- Returns:
--   0  nothing changed: Redis has a newer generation
--   1  the vehicles are written
--   2  nothing changed: the block is shorter than the position, so data was lost. The caller must write a new generation.
--
-- The blocks of a new generation have their own keys. The head then switches to them, and the script deletes the blocks of
-- the old generation.

local SEGMENT = 50000
local generation, count, stamp = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (%d+) (%d+)$')
local mine = tonumber(ARGV[1])
if generation and tonumber(generation) > mine then return 0 end
if redis.call('STRLEN', KEYS[2]) < tonumber(ARGV[2]) then return 2 end
if ARGV[3] ~= '' then redis.call('SETRANGE', KEYS[2], ARGV[2], ARGV[3]) end
if ARGV[4] == '' then return 1 end

local now, marked = tonumber(ARGV[4]), tonumber(ARGV[5])
if generation then marked = math.max(marked, tonumber(stamp)) end
if generation and tonumber(generation) == mine then
  now = math.max(now, tonumber(count))
elseif generation then
  for block = 0, math.floor(math.max(tonumber(count) - 1, 0) / SEGMENT) do
    redis.call('UNLINK', KEYS[1] .. ':' .. generation .. ':' .. block)
  end
end
redis.call('SET', KEYS[1], string.format('%.0f %.0f %.0f', mine, now, marked))
return 1
