-- claim: decides, for a batch of users, who gets units of which shard. first_claim.lua has decided the usual batch of one.
--
-- One call contains groups: each has the requests for one shard, and a shard has one group. On Redis Cluster, all groups
-- must be in one slot.
--
-- KEYS, seven for each group g (from 1), all with that shard's hash tag (see shard.lua, record.lua):
--   7g-6  stock
--   7g-5  epoch
--   7g-4  sequence
--   7g-3  sums
--   7g-2  claims
--   7g-1  pending    sorted set: user by the open claim's deadline in milliseconds
--   7g    bought     prefix of `bought:<bucket>`
--   then, in the order of the groups, the prefixes for each group's checks:
--   reserved         of `reserved:<bucket>`: sets of users with a reservation
--   blocked          of `blocked:<bucket>`: sets of users who may not buy
--   attempt          of `attempt:<user>:<tag>`: the generation that this attempt was granted, for a day
-- ARGV:
--   1     groups     number of groups
--   then for each group: ttl_ms, user_cap, quantity, checks, buckets, users, and if checks contains `k`, one tag per user
--     checks   `-`, or letters: `b` not blocked, `r` reserved, `d` drain: no new claims, `k` attempts have keys
--     buckets  one byte per user; their number is the number of users
--     tag      of the attempt's key; `-` if it has none
--
-- Returns one text with an answer per user, in order, separated by commas. An answer is decimal numbers, separated by
-- spaces:
--   1 generation quantity deadline_ms delivery   granted
--   2 generation quantity deadline_ms delivery   the open claim again; takes no units
--   3 generation                     cap reached; generation of the last order, or 0
--   4 epoch open_claims              not enough units left; open claims of the shard
--   5                                cold shard
--   6                                blocked
--   7                                no reservation
--   8                                draining: no new claims
--   9 generation quantity            this attempt has become an order
--   10                               another attempt holds an undecided claim, and the cap allows for both
-- The reply is a text because gateways parse it many times faster than nested arrays.
-- A refused user leaves no data. Deadlines are by Redis' clock, not by a gateway's.

local KEYS_A_GROUP, COUNTERS = 7, 4
local COLD, BLOCKED, UNRESERVED, DRAINING, IN_PROGRESS = '5', '6', '7', '8', '10'
local ATTEMPT_TTL_MS = '86400000'

local ledger_keys = KEYS_A_GROUP * tonumber(ARGV[1])
local next_set = ledger_keys + 1
local answers = {}

-- Stock, epoch, sequence and sums of all groups: four values a group.
local function read_counters()
  local keys = {}
  for k = 1, ledger_keys, KEYS_A_GROUP do
    for n = k, k + COUNTERS - 1 do keys[#keys + 1] = KEYS[n] end
  end
  return redis.call('MGET', unpack(keys))
end

-- Returns the key prefix for the next check of the group.
local function take_set()
  next_set = next_set + 1
  return KEYS[next_set - 1]
end

-- The current group: its keys begin at KEYS[group]. Creating functions for each group would add 5 % to a small call.
local group, ttl_ms, deadline, user_cap, quantity, buckets, first, drains
local shard, sequence
local first_record, first_answer -- what a first claim's record and answer say behind the generation
local fields, pending -- what is to be written: users and records, and the pending claims' deadlines and users
local settled -- users whose orders move from `bought` into an open claim's record, each with the bucket
local records -- what this batch has made of users' records
local taken -- how many claims this batch has granted
local time_us = now_us()
local attempt -- the key of the request's attempt, if it has one
local attempts = {} -- what this call has granted to attempts: generations by key

local function bucket_of(i) return string.byte(buckets, i - first + 1) end

local function is_in(sets, i)
  return redis.call('SISMEMBER', sets .. ':' .. bucket_of(i), ARGV[i]) == 1
end

local function empty() return '4 ' .. number(shard.epoch) .. ' ' .. number(shard.open + taken) end

-- If a user is written twice, the last write counts.
local function write(user, record)
  records[user] = record
  fields[#fields + 1] = user
  fields[#fields + 1] = record
end

-- Takes the units of a new claim. Returns its generation as text.
local function take(user)
  shard.stock = shard.stock - quantity
  -- The stock had units before this claim, and has none now.
  if shard.stock <= 0 then shard.epoch, shard.is_raised = next_after(shard.epoch), true end
  taken = taken + 1
  sequence = sequence < time_us and time_us or sequence + 1
  pending[#pending + 1] = deadline
  pending[#pending + 1] = user
  local generation = number(sequence)
  if attempt then attempts[attempt] = generation end
  return generation
end

-- The generation that the request's attempt was granted before.
local function granted()
  return attempt and (attempts[attempt] or redis.call('GET', attempt))
end

-- The answer for an attempt that has become an order.
local function order(orders)
  local generation = orders and granted()
  local units = generation and string.match(',' .. orders, ',' .. generation .. '[:~](%d+)')
  return units and '9 ' .. generation .. ' ' .. units
end

-- Decides for a user without a record. The fast path: it reads nothing more and writes little.
local function decide_first(user)
  if drains then return DRAINING end
  if quantity > user_cap then return '3 0' end
  if shard.stock < quantity then return empty() end
  local generation = take(user)
  write(user, generation .. first_record)
  return '1 ' .. generation .. first_answer
end

local function handed_out(code, user, r)
  local delivery = deliver(r)
  write(user, format(r))
  return string.format('%s %d %d %d %d', code, r.generation, r.held, r.deadline, delivery)
end

-- Decides for a user with an open claim.
local function decide_open(user, r)
  -- If the claim uses the whole cap, a second order is impossible.
  if attempt and user_cap > r.held and granted() ~= number(r.generation) then return IN_PROGRESS end
  return handed_out('2', user, r)
end

-- The orders of a user without an open claim; false if there are none.
local function settled_orders(i)
  -- Without any orders on the shard, skip the read.
  if shard.bought == 0 and shard.deferred == 0 then return false end
  return redis.call('HGET', KEYS[group + 6] .. ':' .. bucket_of(i), ARGV[i])
end

-- Decides for a user with orders, but without an open claim.
local function decide_settled(user, bucket, orders)
  if drains then return DRAINING end
  if ordered(orders, '[:~]') + quantity > user_cap then
    return '3 ' .. (string.match(orders, '(%d+)[:~]%d+$') or '0')
  end
  if shard.stock < quantity then return empty() end
  take(user)
  settled[#settled + 1] = { user, bucket }
  local r = with_orders(orders)
  r.generation, r.held, r.deadline = sequence, quantity, tonumber(deadline)
  return handed_out('1', user, r)
end

-- Decides the group whose arguments begin at ARGV[at]. Returns where the arguments of the next group begin.
local function decide(at)
  ttl_ms, user_cap, quantity = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local checks = ARGV[at + 3]
  buckets, first = ARGV[at + 4], at + 5
  local count = #buckets
  local last = at + 4 + count
  local reserved = string.find(checks, 'r', 1, true) and take_set()
  local blocked = string.find(checks, 'b', 1, true) and take_set()
  drains = string.find(checks, 'd', 1, true)
  fields, pending, settled, records, taken = {}, {}, {}, {}, 0
  local tags = string.find(checks, 'k', 1, true) and take_set()
  local first_tag = last + 1
  local after = tags and first_tag + count or first_tag
  if not shard then
    for _ = first, last do answers[#answers + 1] = COLD end
    return after
  end

  local found = redis.call('HMGET', KEYS[group + 4], unpack(ARGV, first, last))
  deadline = number(math.floor(time_us / 1000) + ttl_ms)
  local held = ' ' .. number(quantity) .. ' ' .. deadline
  first_record, first_answer = held .. ' 1 1 -', held .. ' 0'
  for i = first, last do
    local user = ARGV[i]
    -- The batch may contain a user twice: the second request must see the result of the first.
    local record = records[user] or found[i - first + 1]
    record = record and parse(record)
    attempt = tags and ARGV[first_tag + i - first]
    attempt = attempt and attempt ~= '-' and tags .. ':' .. user .. ':' .. attempt
    -- Without an attempt, read the orders only after the other checks.
    local orders = attempt and not record and settled_orders(i)
    local answer = attempt and order(record and record.orders or orders)
    if answer then
      -- The order exists, regardless of later checks of its user.
    elseif blocked and is_in(blocked, i) then
      answer = BLOCKED
    elseif reserved and not is_in(reserved, i) then
      answer = UNRESERVED
    elseif record then
      answer = decide_open(user, record)
    else
      if not attempt then orders = settled_orders(i) end
      answer = orders and decide_settled(user, bucket_of(i), orders) or decide_first(user)
    end
    answers[#answers + 1] = answer
  end
  return after
end

local counters, changed, batches = read_counters(), {}, {}
local at, c = 2, 1
for k = 1, ledger_keys, KEYS_A_GROUP do
  group = k
  shard = { stock = tonumber(counters[c]), epoch = tonumber(counters[c + 1]) or 0 }
  if not shard.stock or not read_sums(shard, counters[c + 3]) then shard = nil end
  sequence = tonumber(counters[c + 2]) or 0
  at = decide(at)
  if #fields > 0 then batches[#batches + 1] = { k = k, fields = fields, pending = pending, settled = settled } end
  if #pending > 0 then
    shard.version, shard.open = shard.version + taken, shard.open + taken
    shard.held = shard.held + taken * quantity
    local n = #changed
    changed[n + 1], changed[n + 2] = KEYS[k], number(shard.stock)
    changed[n + 3], changed[n + 4] = KEYS[k + 2], number(sequence)
    changed[n + 5], changed[n + 6] = KEYS[k + 3], format_sums(shard)
    if shard.is_raised then changed[n + 7], changed[n + 8] = KEYS[k + 1], number(shard.epoch) end
  end
  c = c + COUNTERS
end

-- Write the counters before the records: if a key is damaged, units are missing, and no unit is sold twice.
if #changed > 0 then redis.call('MSET', unpack(changed)) end
for _, batch in ipairs(batches) do
  if #batch.pending > 0 then redis.call('ZADD', KEYS[batch.k + 5], unpack(batch.pending)) end
  redis.call('HSET', KEYS[batch.k + 4], unpack(batch.fields))
  for _, moved in ipairs(batch.settled) do
    redis.call('HDEL', KEYS[batch.k + 6] .. ':' .. moved[2], moved[1])
  end
end
for key, generation in pairs(attempts) do redis.call('SET', key, generation, 'PX', ATTEMPT_TTL_MS) end
return table.concat(answers, ',')
