-- Admits one user, with as little work as possible: the decision of crates/sale/lua/claim.lua for a batch of one.
-- KEYS: stock, claims, pending, sequence, blocked. ARGV: now_ms, ttl_ms, user_cap, user.
-- A claim is "<generation> <deadline_ms>". A user's orders are "<generation> o<units>".
-- Returns {1, generation} granted, {2, generation} the open claim again, {3, generation} cap reached, {4} sold out, {5} no
-- stock key, {6} blocked.
local user = ARGV[4]
if redis.call('SISMEMBER', KEYS[5], user) == 1 then return { 6 } end
local record = redis.call('HGET', KEYS[2], user)
if record then
  local generation, units = string.match(record, '^(%d+) o(%d+)$')
  if not generation then return { 2, tonumber(string.match(record, '^%d+')) } end
  if tonumber(units) >= tonumber(ARGV[3]) then return { 3, tonumber(generation) } end
end
local stock = redis.call('GET', KEYS[1])
if not stock then return { 5 } end
if tonumber(stock) < 1 then return { 4 } end
redis.call('DECR', KEYS[1])
local generation = redis.call('INCR', KEYS[4])
local deadline = string.format('%.0f', ARGV[1] + ARGV[2])
redis.call('HSET', KEYS[2], user, string.format('%.0f', generation) .. ' ' .. deadline)
redis.call('ZADD', KEYS[3], deadline, user)
return { 1, generation }
