-- claim: decides, for a batch of users, who gets units of which shard.
--
-- One call may hold several groups, each the requests to one shard. On Redis Cluster all groups
-- of one call must be of one slot; on a single server any may stand together.
--
-- KEYS, five a group g (1-based), all with that shard's hash tag:
--   5g-4  stock      integer: units left; a missing key is a cold shard
--   5g-3  claims     hash: user -> record, see below
--   5g-2  pending    sorted set: user by the open claim's deadline in ms
--   5g-1  epoch      integer: raised whenever units come back
--   5g    sequence   integer: the last generation given out
-- ARGV:
--   1     now_ms     the gateway's clock
--   then, a group: ttl_ms, user_cap, quantity, count, and `count` users
-- Record: "<bought> <generation> <held> <deadline_ms> <handouts>"; held = 0: no open claim.
--
-- Returns one array a user, in the order given:
--   {1, generation, quantity, deadline_ms}   granted
--   {2, generation, quantity, deadline_ms}   the open claim once more; takes nothing
--   {3, generation}                          cap reached; generation of the last order, or 0
--   {4, epoch, open claims of the shard}      not enough units left
--   {5}                                      cold shard
-- A user who is refused leaves no trace.

local GRANTED, AGAIN, CAP, EMPTY, COLD = 1, 2, 3, 4, 5

local function parse(record)
  if not record then
    return { bought = 0, generation = 0, held = 0, deadline = 0, handouts = 0 }
  end
  local bought, generation, held, deadline, handouts =
    string.match(record, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  return {
    bought = tonumber(bought), generation = tonumber(generation), held = tonumber(held),
    deadline = tonumber(deadline), handouts = tonumber(handouts),
  }
end

local function format(r)
  return string.format('%.0f %.0f %.0f %.0f %.0f', r.bought, r.generation, r.held, r.deadline, r.handouts)
end

local now_ms = tonumber(ARGV[1])
local replies = {}

-- Decides one group whose arguments begin at ARGV[at]; returns where the next begins.
local function decide(keys, at)
  local ttl_ms, user_cap, quantity, count =
    tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local first, last = at + 4, at + 3 + count

  local stock = tonumber(redis.call('GET', keys.stock))
  if not stock then
    for _ = first, last do replies[#replies + 1] = { COLD } end
    return last + 1
  end

  local found = redis.call('HMGET', keys.claims, unpack(ARGV, first, last))
  local epoch = tonumber(redis.call('GET', keys.epoch) or 0)
  local sequence = tonumber(redis.call('GET', keys.sequence) or 0)
  local records, changed, pending, taken = {}, {}, {}, 0
  local open -- claims that were open before this batch, once somebody needs to know

  for i = first, last do
    local user = ARGV[i]
    -- The batch may hold a user twice: the second request must see what the first did.
    local r = records[user] or parse(found[i - first + 1])
    records[user] = r
    if r.held > 0 then
      r.handouts = r.handouts + 1
      changed[user] = true
      replies[#replies + 1] = { AGAIN, r.generation, r.held, r.deadline }
    elseif r.bought + quantity > user_cap then
      replies[#replies + 1] = { CAP, r.generation }
    elseif stock - taken < quantity then
      open = open or redis.call('ZCARD', keys.pending)
      replies[#replies + 1] = { EMPTY, epoch, open + #pending / 2 }
    else
      taken = taken + quantity
      -- The time as a floor keeps generations from repeating after a loss of data.
      sequence = math.max(sequence + 1, now_ms)
      r.generation, r.held, r.deadline, r.handouts = sequence, quantity, now_ms + ttl_ms, 1
      changed[user] = true
      pending[#pending + 1] = r.deadline
      pending[#pending + 1] = user
      replies[#replies + 1] = { GRANTED, r.generation, r.held, r.deadline }
    end
  end

  local fields = {}
  for user in pairs(changed) do
    fields[#fields + 1] = user
    fields[#fields + 1] = format(records[user])
  end
  if taken > 0 then
    redis.call('DECRBY', keys.stock, string.format('%.0f', taken))
    redis.call('SET', keys.sequence, string.format('%.0f', sequence))
    redis.call('ZADD', keys.pending, unpack(pending))
  end
  if #fields > 0 then redis.call('HSET', keys.claims, unpack(fields)) end
  return last + 1
end

local at, k = 2, 1
while k <= #KEYS do
  at = decide({
    stock = KEYS[k], claims = KEYS[k + 1], pending = KEYS[k + 2], epoch = KEYS[k + 3], sequence = KEYS[k + 4],
  }, at)
  k = k + 5
end
return replies
