-- history_fill: loads the removals of one owner's list from the database, and its views from the cold store.
--
-- KEYS: 1 views, 2 deleted, 3 marker, 4 count: see history_view.lua
-- ARGV: 1 lifetime of the keys in milliseconds, 2 maximum views, 3 time up to which the list is cleared (0: never),
--       4 what this call loads: r the removals, a the removals and the cold list, 5 the generation that history_read.lua
--       returned before the database was read, or -, 6 number of deletions,
--       then for each deletion: the time up to which views are removed, SKU; then for each view: its time, SKU
--
-- The marker records what is loaded: n nothing, r the removals, a everything. With n, the list may contain removed views
-- and must not be shown. The generation is a name: the list gets it at the first read, and loses it when its keys are
-- lost or expire. The data counts as loaded only if the list still has generation ARGV[5]. Otherwise the data may lack a
-- removal that Redis has stored and lost since.
--
-- Returns the reply of history_read.lua. If ARGV[5] is another generation than the list's, the reply reports n. To repeat
-- the call, or to call it with an older state of the database, undoes nothing.

local cleared, loaded, generation = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+) (%l) (%S+)$')
if not cleared or tonumber(cleared) < tonumber(ARGV[3]) then cleared = ARGV[3] end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', cleared)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', cleared)
local floor, views_from = tonumber(cleared), 7 + 2 * tonumber(ARGV[6])
for i = 7, views_from - 1, 2 do
  local at, sku = tonumber(ARGV[i]), ARGV[i + 1]
  if at > floor then
    redis.call('ZADD', KEYS[2], 'GT', ARGV[i], sku)
    local seen = redis.call('ZSCORE', KEYS[1], sku)
    if seen and tonumber(seen) <= at then redis.call('ZREM', KEYS[1], sku) end
  end
end
for i = views_from, #ARGV, 2 do
  local at, sku = tonumber(ARGV[i]), ARGV[i + 1]
  local deleted = redis.call('ZSCORE', KEYS[2], sku)
  if at > floor and not (deleted and at <= tonumber(deleted)) then
    redis.call('ZADD', KEYS[1], 'GT', ARGV[i], sku)
  end
end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[2])
loaded, generation = loaded or 'n', generation or '-'
if generation == ARGV[5] and generation ~= '-' and loaded ~= 'a' then loaded = ARGV[4] end
redis.call('SET', KEYS[3], cleared .. ' ' .. loaded .. ' ' .. generation)
redis.call('DEL', KEYS[4])
-- The marker first: see history_view.lua.
for _, k in ipairs({ 3, 1, 2 }) do redis.call('PEXPIRE', KEYS[k], ARGV[1]) end
if ARGV[5] ~= '-' and generation ~= ARGV[5] then loaded = 'n' end
return { loaded, generation, redis.call('ZRANGE', KEYS[1], 0, -1, 'REV', 'WITHSCORES') }
