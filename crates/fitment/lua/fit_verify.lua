-- fit_verify: what Redis has of some SKUs of one product, to be compared with SQL.
--
-- KEYS: 1 directory: see fit_put.lua
-- ARGV: the SKUs: few, as all that they fit is read
--
-- Returns of each SKU two texts, one behind the other: its entry, or nothing; and SHA-1 digests, or nothing where a key is lost,
-- with commas between them: of kind s one of the members in their order, with spaces between them; of kind b one of each bitmap
-- without zeros at its end, in the order of the entry.

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
