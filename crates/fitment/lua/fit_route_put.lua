-- fit_route_put: the places of SKUs.
--
-- KEYS: of each SKU the bucket of its route; all in one slot
-- ARGV: 1 how a newer route is treated: keep, or force (it is replaced); or forget, then of each SKU: its name, version, cluster,
--       SPU; the last two are empty if the SKU is nowhere any more
--
-- A route is "<version> <cluster> <SPU>", or "<version>" of a SKU that is nowhere: what is older and comes late changes nothing.
--
-- forget takes routes away, up to that version.
--
-- Returns how many routes were written, or taken away.

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
