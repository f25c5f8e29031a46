-- fit_put: writes all offsets of one SKU.
--
-- KEYS: 1 directory (hash: SKU to an entry)
-- ARGV: 1 SKU, 2 version, 3 keep or force: keep or replace a newer entry, 4 kind, then
--         for kind s: the offsets
--         for kind b: for each bitmap its segment and its bytes
--
-- An entry contains kind and version:
--   n<version>               fits nothing
--   s<version>               the key <directory>:s:<SKU> is a set of offsets, and of 0, the sentinel
--   b<version>,<segment>,…,  the key <directory>:<segment>:<SKU> is a bitmap: bit 0 is the sentinel, bit 1 the first
--                            offset. A segment that is not listed has no offset.
--   d<version>               a tombstone: the SKU was removed. It rejects older writes that arrive later.
--
-- Returns 1, or 0 if the entry is newer, which changes nothing. The script writes an equal version again, which repairs
-- lost keys.

local key, sku, kind = KEYS[1], ARGV[1], ARGV[4]
local entry = redis.call('HGET', key, sku)
if entry and ARGV[3] ~= 'force' and tonumber(string.match(entry, '^%l(%d+)')) > tonumber(ARGV[2]) then return 0 end

-- The keys of the old entry, and a set whose entry may be lost.
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
