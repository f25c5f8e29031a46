-- overdue: lists claims of one shard whose deadline has passed by Redis' clock, the earliest first.
--
-- KEYS: 1 claims, 2 pending (see record.lua)
-- ARGV: 1 grace_ms: time after the deadline during which a claim is not listed, 2 limit
--
-- Returns an array of {user, generation, quantity, deadline_ms, 0}. The script removes deadlines whose claim was lost.

local due_ms = math.floor(now_us() / 1000) - tonumber(ARGV[1])
local replies = {}
for _, user in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', number(due_ms), 'LIMIT', 0, ARGV[2])) do
  local record = redis.call('HGET', KEYS[1], user)
  if record then
    local r = parse(record)
    replies[#replies + 1] = { user, r.generation, r.held, r.deadline, 0 }
  else
    redis.call('ZREM', KEYS[2], user)
  end
end
return replies
