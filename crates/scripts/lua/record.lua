-- record: what a shard knows of a user, read and written. Stands before every script that needs it.
--
-- "<generation> <held> <deadline_ms> <deliveries> <out> <orders>"
--   generation  the last claim's; held > 0: it is open, with its deadline
--   deliveries    how often it was delivered; out: a bit for each delivery that has not come back
--   orders      `-`, or a comma between each: `<generation>:<units>` for an order whose units have left
--               the stock, `<generation>~<units>` for one whose units leave it at payment
-- A user without an open claim and without orders has no record. Numbers are below 2^53, so Lua's
-- doubles are exact; they are written with %d, which knows no exponents and takes a fifth of the time of %.0f.
-- It writes a C long: 64 bits wherever Redis runs on a 64-bit machine.

local function number(n) return string.format('%d', n) end

local function parse(text)
  if not text then
    return { generation = 0, held = 0, deadline = 0, deliveries = 0, out = 0, orders = '-' }
  end
  local generation, held, deadline, deliveries, out, orders =
    string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S+)$')
  return {
    generation = tonumber(generation), held = tonumber(held), deadline = tonumber(deadline),
    deliveries = tonumber(deliveries), out = tonumber(out), orders = orders,
  }
end

local function format(r)
  return string.format(
    '%d %d %d %d %d %s', r.generation, r.held, r.deadline, r.deliveries, r.out, r.orders)
end

-- Deliveries are told apart up to this number; what has it, or comes later, never comes back.
local DELIVERIES_MAX = 30

-- Delivers the open claim; returns the delivery's number.
local function deliver(r)
  local delivery = math.min(r.deliveries, DELIVERIES_MAX)
  r.deliveries = delivery + 1
  r.out = bit.bor(r.out, bit.lshift(1, delivery))
  return delivery
end

-- Units in the orders with this mark, `:` or `~`.
local function ordered(r, mark)
  local units = 0
  for n in string.gmatch(r.orders, mark .. '(%d+)') do units = units + tonumber(n) end
  return units
end

-- The orders but the one of this generation, then that one's mark and units, if there is one.
local function without(orders, generation)
  local rest, mark, units = {}, nil, nil
  for id, sign, n in string.gmatch(orders, '(%d+)([:~])(%d+)') do
    if id == generation then
      mark, units = sign, tonumber(n)
    else
      rest[#rest + 1] = id .. sign .. n
    end
  end
  return #rest == 0 and '-' or table.concat(rest, ','), mark, units
end

local function with(orders, generation, mark, units)
  local entry = generation .. mark .. number(units)
  return orders == '-' and entry or orders .. ',' .. entry
end

local function keep(claims, user, r)
  if r.held == 0 and r.orders == '-' then
    redis.call('HDEL', claims, user)
  else
    redis.call('HSET', claims, user, format(r))
  end
end

-- Ends the open claim; returns what it held.
local function close(pending, user, r)
  local units = r.held
  r.held, r.deadline, r.deliveries, r.out = 0, 0, 0, 0
  redis.call('ZREM', pending, user)
  return units
end

-- Units come back; on a shard that has lost its stock there is nothing to come back to.
local function give_back(stock, epoch, units)
  if redis.call('EXISTS', stock) == 1 then
    redis.call('INCRBY', stock, number(units))
    redis.call('INCR', epoch)
  end
end

