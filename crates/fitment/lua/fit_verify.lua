-- fit_verify: returns the data of SKUs of one product, for comparison with SQL.
--
-- KEYS: 1 directory: see fit_put.lua
-- ARGV: the SKUs. Only a few: the script reads all their offsets.
--
-- Returns for each SKU two texts in a row: its entry, or an empty text; and SHA-1 digests, separated by commas. A lost key
-- has an empty digest. Kind s has one digest: of the members in ascending order, separated by spaces. Kind b has one
-- digest for each bitmap in the order of the entry: of its bytes without trailing zeros.

local key, told = KEYS[1], {}

local function of_set(set)
  local members = redis.call('SMEMBERS', set)
  if members[1] == nil then return '' end
  for i, member in ipairs(members) do members[i] = tonumber(member) end
  table.sort(members)
  for i, member in ipairs(members) do members[i] = string.format('%.0f', member) end
  return redis.sha1hex(table.concat(members, ' '))
end

local function of_bitmap(bitmap)
  local bytes = redis.call('GET', bitmap)
  if not bytes then return '' end
  local length = #bytes
  while length > 0 and string.byte(bytes, length) == 0 do length = length - 1 end
  return redis.sha1hex(string.sub(bytes, 1, length))
end

for _, sku in ipairs(ARGV) do
  local entry = redis.call('HGET', key, sku) or ''
  local digests, kind = {}, string.sub(entry, 1, 1)
  if kind == 's' then
    digests[1] = of_set(key .. ':s:' .. sku)
  elseif kind == 'b' then
    for segment in string.gmatch(entry, ',(%d+)') do
      digests[#digests + 1] = of_bitmap(key .. ':' .. segment .. ':' .. sku)
    end
  end
  told[#told + 1], told[#told + 2] = entry, table.concat(digests, ',')
end
return told
