-- claim: decides, for a batch of users, who gets units of which shard.
--
-- One call may hold several groups, each the requests to one shard. On Redis Cluster all groups
-- of one call must be of one slot; on a single server any may stand together.
--
-- KEYS, seven a group g (1-based), all with that shard's hash tag:
--   7g-6  stock      integer: units left; a missing key is a cold shard
--   7g-5  claims     hash: user -> record, see record.lua
--   7g-4  pending    sorted set: user by the open claim's deadline in ms
--   7g-3  epoch      integer: raised whenever units come back
--   7g-2  sequence   integer: the last generation or transfer id given out
--   7g-1  reserved   `reserved:<bucket>`: sets of users with a reservation
--   7g    blocked    `blocked:<bucket>`: sets of users who may not buy
-- ARGV:
--   1     now_ms     the gateway's clock
--   then, a group: ttl_ms, user_cap, quantity, checks, count, `count` users, and, if checks has
--   `b` or `r`, as many buckets
--     checks   `-`, or letters: `b` not blocked, `r` reserved, `d` drain: no new claims
--
-- Returns one array a user, in the order given:
--   {1, generation, quantity, deadline_ms, handout}   granted
--   {2, generation, quantity, deadline_ms, handout}   the open claim once more; takes nothing
--   {3, generation}                          cap reached; generation of the last order, or 0
--   {4, epoch, open claims of the shard}     not enough units left
--   {5}                                      cold shard
--   {6}                                      blocked
--   {7}                                      no reservation
--   {8}                                      no new claims are made
-- A user who is refused leaves no trace.

local GRANTED, AGAIN, CAP, EMPTY, COLD, BLOCKED, UNRESERVED, DRAINING = 1, 2, 3, 4, 5, 6, 7, 8

local now_ms = tonumber(ARGV[1])
local replies = {}

-- Decides one group whose arguments begin at ARGV[at]; returns where the next begins.
local function decide(keys, at)
  local ttl_ms, user_cap, quantity, checks, count =
    tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3], tonumber(ARGV[at + 4])
  local first, last = at + 5, at + 4 + count
  local asks_blocked = string.find(checks, 'b', 1, true)
  local asks_reserved = string.find(checks, 'r', 1, true)
  local drains = string.find(checks, 'd', 1, true)
  local after = (asks_blocked or asks_reserved) and last + count + 1 or last + 1

  local stock = tonumber(redis.call('GET', keys.stock))
  if not stock then
    for _ = first, last do replies[#replies + 1] = { COLD } end
    return after
  end

  local found = redis.call('HMGET', keys.claims, unpack(ARGV, first, last))
  local epoch = tonumber(redis.call('GET', keys.epoch) or 0)
  local sequence = tonumber(redis.call('GET', keys.sequence) or 0)
  local records, changed, pending, taken = {}, {}, {}, 0
  local open -- claims that were open before this batch, once somebody needs to know

  local function is_in(sets, i)
    return redis.call('SISMEMBER', sets .. ':' .. ARGV[i + count], ARGV[i]) == 1
  end

  for i = first, last do
    local user = ARGV[i]
    -- The batch may hold a user twice: the second request must see what the first did.
    local r = records[user] or parse(found[i - first + 1])
    records[user] = r
    if asks_blocked and is_in(keys.blocked, i) then
      replies[#replies + 1] = { BLOCKED }
    elseif asks_reserved and not is_in(keys.reserved, i) then
      replies[#replies + 1] = { UNRESERVED }
    elseif r.held > 0 then
      changed[user] = true
      replies[#replies + 1] = { AGAIN, r.generation, r.held, r.deadline, hand_out(r) }
    elseif drains then
      replies[#replies + 1] = { DRAINING }
    elseif ordered(r, '[:~]') + quantity > user_cap then
      replies[#replies + 1] = { CAP, tonumber(string.match(r.orders, '(%d+)[:~]%d+$') or 0) }
    elseif stock - taken < quantity then
      open = open or redis.call('ZCARD', keys.pending)
      replies[#replies + 1] = { EMPTY, epoch, open + #pending / 2 }
    else
      taken = taken + quantity
      -- The time as a floor keeps generations from repeating after a loss of data.
      sequence = math.max(sequence + 1, now_ms)
      r.generation, r.held, r.deadline = sequence, quantity, now_ms + ttl_ms
      changed[user] = true
      pending[#pending + 1] = number(r.deadline)
      pending[#pending + 1] = user
      replies[#replies + 1] = { GRANTED, r.generation, r.held, r.deadline, hand_out(r) }
    end
  end

  local fields = {}
  for user in pairs(changed) do
    fields[#fields + 1] = user
    fields[#fields + 1] = format(records[user])
  end
  if taken > 0 then
    redis.call('DECRBY', keys.stock, number(taken))
    redis.call('SET', keys.sequence, number(sequence))
    redis.call('ZADD', keys.pending, unpack(pending))
  end
  if #fields > 0 then redis.call('HSET', keys.claims, unpack(fields)) end
  return after
end

local at, k = 2, 1
while k <= #KEYS do
  at = decide({
    stock = KEYS[k], claims = KEYS[k + 1], pending = KEYS[k + 2], epoch = KEYS[k + 3], sequence = KEYS[k + 4],
    reserved = KEYS[k + 5], blocked = KEYS[k + 6],
  }, at)
  k = k + 7
end
return replies
