-- fit_vehicles_put: vehicles join the map, or it is made anew.
--
-- KEYS: 1 head ("<generation> <count> <stamp>"), 2 block that they go to: see fit_vehicles.lua
-- ARGV: 1 generation, 2 where they begin in the block, in bytes, 3 their ids of four bytes each, 4 how many vehicles there are
--         then, or empty: the head stays as it is, since more blocks follow, 5 stamp
--
-- Returns 1, 0 if a newer generation is there, or 2 if the block is shorter than where they begin: something is lost, and a new
-- generation must be written. Neither changes anything.
--
-- A new generation is written under its own keys before the head names it; the old one's blocks go then.

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
