-- shard: reads and writes the data of a shard, except its users. Precedes every script that needs it.
--
--   stock     integer: units left. May be negative if orders are deducted at payment.
--   epoch     integer: changes whenever units are added, and whenever the last one is taken. A gateway that has seen the
--             shard without units may answer "sold out" while the epoch is the same.
--   sequence  integer: the last generation or transfer ID
--   sums      "<version> <open> <held> <bought> <deferred> <checksum>": totals over the shard's users
--     version   increases with each change of stock or sums
--     open      number of open claims; held: units in them
--     bought    units in orders that have left the stock; deferred: units in orders that have not
--     checksum  sum of these orders' generations modulo 2^31 - 1. SQL computes the same sum over its orders.
--
-- A shard without stock or sums is cold: it was not loaded, or has lost its data. Claims and returns of units do nothing
-- on it until the origin has loaded or rebuilt it.
--
-- Epochs, generations and transfer IDs are never reused, although Redis may lose its last writes: each is at least the
-- time in microseconds by Redis' own clock, and lost ones are older.

-- Numbers are below 2^53, so Lua's doubles are exact. %d writes no exponents and takes a fifth of the time of %.0f. It
-- formats a C long: 64 bits on every 64-bit machine.
local function number(n) return string.format('%d', n) end

local clock_us

-- Returns the time by Redis' clock in microseconds. All callers share this clock, and it does not advance within a
-- script.
local function now_us()
  if not clock_us then
    local time = redis.call('TIME')
    clock_us = time[1] * 1000000 + time[2]
  end
  return clock_us
end

-- Returns a number that is greater than `last` and was never used before.
local function next_after(last) return math.max(last + 1, now_us()) end

-- Reads the sums into `shard`. Returns false if they are missing or damaged.
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

-- Sums are not negative, unless Redis has lost a key: the origin detects that.
local function format_sums(shard)
  local open, held = math.max(shard.open, 0), math.max(shard.held, 0)
  return string.format('%d %d %d %d %d %d', shard.version, open, held, math.max(shard.bought, 0),
    math.max(shard.deferred, 0), shard.checksum)
end

-- Returns the shard, or nil if it is cold.
local function load(stock, epoch, sums)
  local values = redis.call('MGET', stock, epoch, sums)
  local shard = { keys = { stock, epoch, sums }, stock = tonumber(values[1]), epoch = tonumber(values[2]) or 0 }
  if not shard.stock or not read_sums(shard, values[3]) then return nil end
  return shard
end

-- Adds units to the stock, or removes some.
local function change_stock(shard, units)
  local before = shard.stock
  shard.stock = before + units
  if units > 0 or (before > 0 and shard.stock <= 0) then shard.epoch = next_after(shard.epoch) end
end

-- Writes the shard. Callers change the version, so that readers detect every change.
local function save(shard)
  local keys = shard.keys
  redis.call('MSET', keys[1], number(shard.stock), keys[2], number(shard.epoch), keys[3], format_sums(shard))
end
