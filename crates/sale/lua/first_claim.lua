-- first_claim: the usual claim, decided before the functions of claim.lua are created, which takes most of a small call's
-- time. Precedes claim.lua, with its KEYS, ARGV and reply.
--
-- It decides one user who has neither a claim nor an order on the shard, whose attempt has no key, and who leaves units in
-- stock. Everything else is up to claim.lua: until it has decided, it writes nothing.

if #ARGV == 7 and (ARGV[5] == 'b' or ARGV[5] == '-') and not redis.call('HMGET', KEYS[5], ARGV[7])[1] then
  local user, bucket, units = ARGV[7], ':' .. string.byte(ARGV[6]), tonumber(ARGV[4])
  local values = redis.call('MGET', KEYS[1], KEYS[3], KEYS[4])
  local stock, sums = tonumber(values[1]), values[3] or ''
  local version, open, held, of_orders = string.match(sums, '^(%d+) (%d+) (%d+)( %d+ %d+ %d+)$')
  local is_first = version and stock and stock > units and units <= tonumber(ARGV[3])
    and (string.find(of_orders, '^ 0 0 ') or not redis.call('HGET', KEYS[7] .. bucket, user))
    and (ARGV[5] == '-' or redis.call('SISMEMBER', KEYS[8] .. bucket, user) == 0)
  if is_first then
    local time = redis.call('TIME')
    local now_us = time[1] * 1000000 + time[2]
    local generation = string.format('%d', math.max((tonumber(values[2]) or 0) + 1, now_us))
    local deadline = string.format('%d', math.floor(now_us / 1000) + ARGV[2])
    local claim = generation .. ' ' .. ARGV[4] .. ' ' .. deadline
    redis.call('MSET', KEYS[1], string.format('%d', stock - units), KEYS[3], generation,
      KEYS[4], string.format('%d %d %d', version + 1, open + 1, held + units) .. of_orders)
    redis.call('ZADD', KEYS[6], deadline, user)
    redis.call('HSET', KEYS[5], user, claim .. ' 1 1 -')
    return '1 ' .. claim .. ' 0'
  end
end

