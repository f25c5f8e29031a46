-- shard: what a shard holds besides its users, read and written. Stands before every script that needs it.
--
--   stock     integer: units left. It may be below 0, where orders are deducted at payment.
--   epoch     integer: another one whenever units come, and whenever the last one goes. A gateway that has seen
--             the shard without units may say so for as long as the epoch is the same.
--   sequence  integer: the last generation or transfer id given out
--   sums      "<version> <open> <held> <bought> <deferred> <checksum>": kept, so that nobody needs to add up a shard's users
--     version   one more with each change of stock or sums
--     open      open claims;  held: units in them
--     bought    units in orders that have left the stock;  deferred: units in orders that have not
--     checksum  of these orders' generations, summed up modulo 2^31 - 1. SQL keeps the same of the orders that it has.
--
-- A shard that lacks its stock or its sums is cold: not warmed, or lost. Nothing on it is sold, and nothing comes
-- back to it, until the origin has warmed or rebuilt it.
--
-- Epochs, generations and transfer ids never come twice, though Redis may lose its last writes: each is at least
-- the time in microseconds, by Redis' own clock, and what is lost was given out before.

-- Numbers are below 2^53, so Lua's doubles are exact; they are written with %d, which knows no exponents and takes a
-- fifth of the time of %.0f. It writes a C long: 64 bits wherever Redis runs on a 64-bit machine.
local function number(n) return string.format('%d', n) end

local clock_us

-- The time by Redis' clock. It is one for all callers, and stands still within a script.
local function now_us()
  if not clock_us then
    local time = redis.call('TIME')
    clock_us = time[1] * 1000000 + time[2]
  end
  return clock_us
end

-- A number that comes after `last`, and never came before.
local function next_after(last) return math.max(last + 1, now_us()) end

-- Reads the sums into `shard`; false if they are not there, or damaged.
local function read_sums(shard, text)
  local version, open, held, bought, deferred, checksum
  if text then
    version, open, held, bought, deferred, checksum =
      string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  end
  if not version then return false end
  shard.version, shard.open, shard.held = tonumber(version), tonumber(open), tonumber(held)
  shard.bought, shard.deferred, shard.checksum = tonumber(bought), tonumber(deferred), tonumber(checksum)
  return true
end

-- None of the sums is below 0, unless Redis was made to forget a key in their midst: the origin finds that.
local function format_sums(shard)
  local open, held = math.max(shard.open, 0), math.max(shard.held, 0)
  return string.format('%d %d %d %d %d %d', shard.version, open, held, math.max(shard.bought, 0),
    math.max(shard.deferred, 0), shard.checksum)
end

-- The shard, or nil if it is cold.
local function load(stock, epoch, sums)
  local values = redis.call('MGET', stock, epoch, sums)
  local shard = { keys = { stock, epoch, sums }, stock = tonumber(values[1]), epoch = tonumber(values[2]) or 0 }
  if not shard.stock or not read_sums(shard, values[3]) then return nil end
  return shard
end

-- Units come, or go.
local function change_stock(shard, units)
  local before = shard.stock
  shard.stock = before + units
  if units > 0 or (before > 0 and shard.stock <= 0) then shard.epoch = next_after(shard.epoch) end
end

-- Writes the shard. Every change counts, so that whoever has read it can tell that it is another.
local function save(shard)
  local keys = shard.keys
  redis.call('MSET', keys[1], number(shard.stock), keys[2], number(shard.epoch), keys[3], format_sums(shard))
end
