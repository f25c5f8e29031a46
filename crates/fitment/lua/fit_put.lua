-- fit_put: all that one SKU fits.
--
-- KEYS: 1 directory (hash: SKU to an entry)
-- ARGV: 1 SKU, 2 version, 3 how a newer entry is treated: keep, or force (it is replaced), 4 kind, then
--         of kind s: the offsets
--         of kind b: of each bitmap its segment and its bytes
--
-- An entry is kind and version:
--   n<version>               fits nothing
--   s<version>               :s:<SKU> behind the directory's name is a set of offsets, and of 0, the sentinel
--   b<version>,<segment>,…,  :<segment>:<SKU> is a bitmap, in which bit 0 is the sentinel and bit 1 the first offset; a segment
--                            that is not named has no offset
--   d<version>               there is no such SKU here any more; so what is older and comes late is known to be older
--
-- Returns 1, or 0 if the entry is newer, which changes nothing. An equal version is written again: that mends what was lost.

local key, sku, kind = KEYS[1], ARGV[1], ARGV[4]
local entry = redis.call('HGET', key, sku)
if entry and ARGV[3] ~= 'force' and tonumber(string.match(entry, '^%l(%d+)')) > tonumber(ARGV[2]) then return 0 end

-- What the old entry names, and a set that a lost entry may have named.
local old = { key .. ':s:' .. sku }
for segment in string.gmatch(entry or '', ',(%d+)') do old[#old + 1] = key .. ':' .. segment .. ':' .. sku end
redis.call('UNLINK', unpack(old))

local names = ''
if kind == 's' then
  redis.call('SADD', key .. ':s:' .. sku, 0, unpack(ARGV, 5))
elseif kind == 'b' then
  local all = { ',' }
  for i = 5, #ARGV, 2 do
    redis.call('SET', key .. ':' .. ARGV[i] .. ':' .. sku, ARGV[i + 1])
    all[#all + 1] = ARGV[i] .. ','
  end
  names = table.concat(all)
end
redis.call('HSET', key, sku, kind .. ARGV[2] .. names)
return 1
