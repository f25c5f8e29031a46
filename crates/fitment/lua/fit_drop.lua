-- fit_drop: SKUs of one product are not here any more.
--
-- KEYS: 1 directory: see fit_put.lua
-- ARGV: 1 how many segments may have bitmaps that no entry names, 2 drop, or forget, then of each SKU: its name, version
--
-- drop leaves a mark of the version, so that what is older and comes late changes nothing. forget takes such marks away, up to
-- that version.
--
-- Returns how many SKUs were dropped or forgotten. One whose entry is newer stays as it is.

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
