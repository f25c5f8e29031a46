-- fit_drop: removes SKUs of one product.
--
-- KEYS: 1 directory: see fit_put.lua
-- ARGV: 1 number of segments that may have bitmaps without an entry, 2 drop or forget, then for each SKU: its name,
--       version
--
-- drop leaves a tombstone with the version, so that older writes that arrive later change nothing. forget removes
-- tombstones up to that version.
--
-- Returns how many SKUs were dropped or forgotten. SKUs with a newer entry do not change.

local key, done = KEYS[1], 0
for i = 3, #ARGV, 2 do
  local sku = ARGV[i]
  local entry = redis.call('HGET', key, sku)
  local is_newer = entry and tonumber(string.match(entry, '^%l(%d+)')) > tonumber(ARGV[i + 1])
  if ARGV[2] == 'forget' then
    if entry and not is_newer and string.find(entry, '^d') then done = done + redis.call('HDEL', key, sku) end
  elseif not is_newer then
    local old = { key .. ':s:' .. sku }
    for segment in string.gmatch(entry or '', ',(%d+)') do old[#old + 1] = key .. ':' .. segment .. ':' .. sku end
    for segment = 0, tonumber(ARGV[1]) - 1 do old[#old + 1] = key .. ':' .. segment .. ':' .. sku end
    redis.call('UNLINK', unpack(old))
    redis.call('HSET', key, sku, 'd' .. ARGV[i + 1])
    done = done + 1
  end
end
return done
