-- claim: decides, for a batch of users, who gets units of which shard.
--
-- One call may hold several groups, each the requests to one shard, and each shard once. On Redis Cluster
-- all groups of one call must be of one slot; on a single server any may stand together.
--
-- KEYS, seven a group g (1-based), all with that shard's hash tag (see shard.lua, record.lua):
--   7g-6  stock
--   7g-5  epoch
--   7g-4  sequence
--   7g-3  sums
--   7g-2  claims
--   7g-1  pending    sorted set: user by the open claim's deadline in ms
--   7g    bought     `bought:<bucket>`
--   and behind those of all groups, in the groups' order, what each group's checks ask for:
--   reserved         `reserved:<bucket>`: sets of users with a reservation
--   blocked          `blocked:<bucket>`: sets of users who may not buy
--   attempt          `attempt:<user>:<tag>`: the generation that this attempt was granted, for a day
-- ARGV:
--   1     groups     how many there are
--   then, a group: ttl_ms, user_cap, quantity, checks, buckets, users, and if checks has `k` as many tags
--     checks   `-`, or letters: `b` not blocked, `r` reserved, `d` drain: no new claims, `k` attempts have keys
--     buckets  a byte a user, so their length is how many users there are
--     tag      of the attempt's key; `-` if it has none
--
-- Returns one text with an answer a user, in the order given, commas between. An answer is numbers in
-- decimal, a space between:
--   1 generation quantity deadline_ms delivery   granted
--   2 generation quantity deadline_ms delivery   the open claim once more; takes nothing
--   3 generation                     cap reached; generation of the last order, or 0
--   4 epoch open_claims              not enough units left; open claims of the shard
--   5                                cold shard
--   6                                blocked
--   7                                no reservation
--   8                                no new claims are made
--   9 generation quantity            this attempt has become an order
--   10                               another attempt holds a claim that is not decided, and the cap allows for both
-- A text, and not an array of arrays: gateways read it, and they read a text many times faster.
-- A user who is refused leaves no trace. Deadlines are of Redis' clock, whatever a gateway's shows.

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

-- The key of the sets that the next group with such a check asks for.
local function take_set()
  next_set = next_set + 1
  return KEYS[next_set - 1]
end

-- The group that is being decided: its keys begin at KEYS[group]. Functions that were made anew for each group would
-- cost a small call a twentieth of its time.
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

-- A user who is written twice has what was written last.
local function write(user, record)
  records[user] = record
  fields[#fields + 1] = user
  fields[#fields + 1] = record
end

-- Takes the units of a new claim; returns its generation as text.
local function take(user)
  shard.stock = shard.stock - quantity
  -- There was one for the claim: now there is none.
  if shard.stock <= 0 then shard.epoch, shard.is_raised = next_after(shard.epoch), true end
  taken = taken + 1
  sequence = sequence < time_us and time_us or sequence + 1
  pending[#pending + 1] = deadline
  pending[#pending + 1] = user
  local generation = number(sequence)
  if attempt then attempts[attempt] = generation end
  return generation
end

-- Which claim the request's attempt was granted before.
local function granted()
  return attempt and (attempts[attempt] or redis.call('GET', attempt))
end

-- The order that the request's attempt has become, as an answer.
local function order(orders)
  local generation = orders and granted()
  local units = generation and string.match(',' .. orders, ',' .. generation .. '[:~](%d+)')
  return units and '9 ' .. generation .. ' ' .. units
end

-- A user without a record: nothing has to be read, and little to be written anew.
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

-- A user who holds a claim.
local function decide_open(user, r)
  -- Where the claim is all that the cap allows for, there can be no second order beside it.
  if attempt and user_cap > r.held and granted() ~= number(r.generation) then return IN_PROGRESS end
  return handed_out('2', user, r)
end

-- The orders of a user who holds no claim; false if there are none.
local function settled_orders(i)
  -- At first nobody has any, and need not be asked for.
  if shard.bought == 0 and shard.deferred == 0 then return false end
  return redis.call('HGET', KEYS[group + 6] .. ':' .. bucket_of(i), ARGV[i])
end

-- A user who has orders, and no open claim.
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

-- Decides the group, whose arguments begin at ARGV[at]; returns where the next one's do.
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
    -- The batch may hold a user twice: the second request must see what the first did.
    local record = records[user] or found[i - first + 1]
    record = record and parse(record)
    attempt = tags and ARGV[first_tag + i - first]
    attempt = attempt and attempt ~= '-' and tags .. ':' .. user .. ':' .. attempt
    -- Of others nobody asks before it is known that they may buy.
    local orders = attempt and not record and settled_orders(i)
    local answer = attempt and order(record and record.orders or orders)
    if answer then
      -- Whatever was decided of its user since.
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

-- First what is taken, then for whom: should a key be damaged, units are missing and none is there twice.
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
