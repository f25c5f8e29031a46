-- history_fill: what the database has removed of one owner's list, and what the cold store has of it, come to Redis.
--
-- KEYS: 1 views, 2 deleted, 3 marker, 4 count: see history_view.lua
-- ARGV: 1 how long the keys live, in milliseconds, 2 the most views, 3 cleared up to then (0: never),
--       4 what comes: r the removals, a the removals and the cold list, 5 the generation that history_read.lua told before
--       the database was read, or -, 6 number of deletions,
--       then of each deletion: up to when views go, the SKU; then of each view: its time, the SKU
--
-- The marker says what is loaded: n nothing, r the removals, a all. If nothing is, views may be there that were removed, and
-- must not be shown. Its generation is a name that the list has from the first look of a reader until its keys are lost or
-- expire. What comes counts as loaded only if the list still has that generation: else it may be older than a removal that
-- Redis was told of, and has lost since.
--
-- Returns what history_read.lua returns; of another list than the one that was read, that nothing is loaded. To run it again, or with an older state of the database, takes nothing back.

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
-- The marker first, as in history_view.lua.
for _, k in ipairs({ 3, 1, 2 }) do redis.call('PEXPIRE', KEYS[k], ARGV[1]) end
if ARGV[5] ~= '-' and generation ~= ARGV[5] then loaded = 'n' end
return { loaded, generation, redis.call('ZRANGE', KEYS[1], 0, -1, 'REV', 'WITHSCORES') }
