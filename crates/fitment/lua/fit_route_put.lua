-- fit_route_put: writes or removes the routes of SKUs.
--
-- KEYS: for each SKU the bucket of its route; all in one slot
-- ARGV: 1 keep or force: keep or replace a newer route; or forget; then for each SKU: its name, version, cluster, SPU.
--       Cluster and SPU are empty if the SKU was removed.
--
-- A route is "<version> <cluster> <SPU>", or "<version>" for a removed SKU. The latter rejects older writes that arrive
-- later. forget removes routes up to that version.
--
-- Returns how many routes were written or removed.

local written = 0
for i, bucket in ipairs(KEYS) do
  local at = 4 * i - 2
  local sku, version, cluster = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local old = redis.call('HGET', bucket, sku)
  local is_newer = old and tonumber(string.match(old, '^%d+')) > tonumber(version)
  if ARGV[1] == 'forget' then
    if not is_newer then written = written + redis.call('HDEL', bucket, sku) end
  elseif ARGV[1] == 'force' or not is_newer then
    local place = cluster == '' and '' or ' ' .. cluster .. ' ' .. ARGV[at + 3]
    redis.call('HSET', bucket, sku, version .. place)
    written = written + 1
  end
end
return written
