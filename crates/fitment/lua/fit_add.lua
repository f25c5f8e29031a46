-- fit_add: adds offsets to one SKU and removes others.
--
-- KEYS: 1 directory: see fit_put.lua
-- ARGV: 1 SKU, 2 version before, 3 version after, 4 maximum members of a set, including the sentinel, 5 number of offsets
--       to add, then the offsets to add, the largest first, then the offsets to remove
--
-- Returns:
--   0  nothing changed, and the caller must write the whole SKU: Redis has another version than the version before, the
--      kind would change, or a key is lost
--   1  the SKU has the version after
--   2  nothing changed: Redis already has the version after or a newer one
--
-- The script first extends a bitmap with one SET to the length that its largest offset needs. Redis allocates unused
-- memory for a string that grows by SETBIT.

local SEGMENT = 50000
local key, sku, added = KEYS[1], ARGV[1], tonumber(ARGV[5])
local entry = redis.call('HGET', key, sku)
if not entry then return 0 end
local kind, version, names = string.match(entry, '^(%l)(%d+)(.*)$')
if tonumber(version) >= tonumber(ARGV[3]) then return 2 end
if tonumber(version) ~= tonumber(ARGV[2]) then return 0 end

if kind == 's' then
  local set = key .. ':s:' .. sku
  if redis.call('SISMEMBER', set, 0) == 0 then return 0 end
  if redis.call('SCARD', set) + added > tonumber(ARGV[4]) then return 0 end
  if added > 0 then redis.call('SADD', set, unpack(ARGV, 6, 5 + added)) end
  if #ARGV > 5 + added then redis.call('SREM', set, unpack(ARGV, 6 + added)) end
elseif kind == 'b' then
  -- Check everything before the first write. For each segment, find the largest bit to set.
  local largest, order, changes = {}, {}, {}
  for i = 6, #ARGV do
    local at = tonumber(ARGV[i]) - 1
    local segment, bit, is_added = math.floor(at / SEGMENT), 1 + at % SEGMENT, i <= 5 + added
    local is_there = string.find(names, ',' .. segment .. ',', 1, true)
    local bitmap = key .. ':' .. segment .. ':' .. sku
    if is_there and not largest[segment] and redis.call('GETBIT', bitmap, 0) == 0 then return 0 end
    if is_there or is_added then
      if not largest[segment] then
        largest[segment] = { bitmap = bitmap, bit = 0, is_new = not is_there, number = segment }
        order[#order + 1] = largest[segment]
      end
      if is_added then largest[segment].bit = math.max(largest[segment].bit, bit) end
      changes[#changes + 1] = { bitmap, bit, is_added and 1 or 0 }
    end
  end
  for _, segment in ipairs(order) do
    local bytes = segment.is_new and '\128' or redis.call('GET', segment.bitmap)
    local missing = math.floor(segment.bit / 8) + 1 - #bytes
    if segment.is_new or missing > 0 then
      redis.call('SET', segment.bitmap, bytes .. string.rep('\0', math.max(missing, 0)))
    end
    if segment.is_new then names = names .. segment.number .. ',' end
  end
  for _, change in ipairs(changes) do
    -- Bits after the end are 0, and SETBIT 0 would extend the string.
    if change[3] == 1 or redis.call('GETBIT', change[1], change[2]) == 1 then
      redis.call('SETBIT', change[1], change[2], change[3])
    end
  end
else
  return 0
end
redis.call('HSET', key, sku, kind .. ARGV[3] .. names)
return 1
