-- record: reads and writes a shard's data of a user. Follows shard.lua, and precedes every script that needs it.
--
--   claims           hash: users with an open claim to "<generation> <held> <deadline_ms> <deliveries> <out> <orders>"
--     generation       of the claim; held: its units; deadline_ms: their deadline
--     deliveries       number of deliveries; out: a bit for each delivery that was not returned
--     orders           as below
--   bought:<bucket>  hashes: users without an open claim to their orders. Buckets (256) keep the keys small, even with a
--                    million buyers.
--
-- Orders are `-`, or a list separated by commas: `<generation>:<units>` for an order whose units have left the stock,
-- `<generation>~<units>` for one whose units leave it at payment. A user without a claim and orders has no record.

-- Returns the record of a user with these orders and without an open claim.
local function with_orders(orders)
  return {
    generation = 0, held = 0, deadline = 0, deliveries = 0, out = 0, orders = orders or '-',
    was_settled = orders and true,
  }
end

local function parse(text)
  local generation, held, deadline, deliveries, out, orders =
    string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S+)$')
  return {
    generation = tonumber(generation), held = tonumber(held), deadline = tonumber(deadline),
    deliveries = tonumber(deliveries), out = tonumber(out), orders = orders, was_open = true,
  }
end

local function format(r)
  return string.format(
    '%d %d %d %d %d %s', r.generation, r.held, r.deadline, r.deliveries, r.out, r.orders)
end

local function find(claims, bought, user, bucket)
  local claim = redis.call('HGET', claims, user)
  if claim then return parse(claim) end
  return with_orders(redis.call('HGET', bought .. ':' .. bucket, user))
end

-- Writes the record to the key of its current state.
local function keep(claims, bought, user, bucket, r)
  if r.held > 0 then
    redis.call('HSET', claims, user, format(r))
    return
  end
  if r.was_open then redis.call('HDEL', claims, user) end
  if r.orders ~= '-' then
    redis.call('HSET', bought .. ':' .. bucket, user, r.orders)
  elseif r.was_settled then
    redis.call('HDEL', bought .. ':' .. bucket, user)
  end
end

-- Maximum of distinguishable deliveries. Deliveries with this number cannot be returned.
local DELIVERIES_MAX = 30

-- Delivers the open claim. Returns the delivery's number.
local function deliver(r)
  local delivery = math.min(r.deliveries, DELIVERIES_MAX)
  r.deliveries = delivery + 1
  r.out = bit.bor(r.out, bit.lshift(1, delivery))
  return delivery
end

-- Returns the units in the orders with this mark, `:` or `~`.
local function ordered(orders, mark)
  local units = 0
  for n in string.gmatch(orders, mark .. '(%d+)') do units = units + tonumber(n) end
  return units
end

-- Returns the orders without the one of this generation, then its mark and units, if it exists.
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

-- Ends the open claim. Returns its units.
local function close(shard, pending, user, r)
  local units = r.held
  r.held, r.deadline, r.deliveries, r.out = 0, 0, 0, 0
  redis.call('ZREM', pending, user)
  shard.open, shard.held, shard.version = shard.open - 1, shard.held - units, shard.version + 1
  return units
end

local CHECKSUMS = 2147483647

-- Adds an order to the sums; removes it if `sign` is -1.
local function count_order(shard, generation, mark, units, sign)
  if mark == ':' then
    shard.bought = shard.bought + sign * units
  else
    shard.deferred = shard.deferred + sign * units
  end
  -- Lua's remainder is never negative here.
  shard.checksum = (shard.checksum + sign * (tonumber(generation) % CHECKSUMS)) % CHECKSUMS
end

-- Adds all orders of a user to the sums; removes them if `sign` is -1.
local function count_orders(shard, orders, sign)
  for generation, mark, units in string.gmatch(orders, '(%d+)([:~])(%d+)') do
    count_order(shard, generation, mark, tonumber(units), sign)
  end
end
