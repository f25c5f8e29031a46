-- Parts that fit vehicles, in nginx' Lua: the same request, script and response as Weir's.
local cjson = require "cjson.safe"
local redis = require "nginx.redis"

local SEGMENT = 50000
local M, redis_host, redis_port, query_sha, offsets = {}, nil, nil, nil, nil
local WORDS = { [0] = '"does_not"', [1] = '"fits"' }

function M.start(host, port, sha) redis_host, redis_port, query_sha = host, port, sha end

local function connect()
  local client = redis:new()
  client:set_timeout(250)
  if client:connect(redis_host, redis_port) then return client end
end

-- Loads the map of vehicles, once per worker.
local function load_vehicles(client)
  local found, segment = {}, 0
  while true do
    local block = client:get("weir:fit:vehicles:{all}:1:" .. segment)
    if not block or block == ngx.null then break end
    for at = 1, #block, 4 do
      local a, b, c, d = block:byte(at, at + 3)
      found[string.format("%07d", ((a * 256 + b) * 256 + c) * 256 + d)] = segment * SEGMENT + (at + 3) / 4
    end
    segment = segment + 1
  end
  return found
end

local function refuse(status, code, message)
  ngx.status = status
  local body = '{"type":"urn:weir:problem:' .. code .. '","status":' .. status .. ',"error":"' .. code .. '","message":"' .. message .. '"}'
  ngx.header["content-type"] = "application/problem+json"
  ngx.header["cache-control"] = "no-store"
  ngx.header["content-length"] = #body
  ngx.print(body)
end

local function read_question()
  ngx.req.read_body()
  local question = cjson.decode(ngx.req.get_body_data() or "")
  if type(question) ~= "table" or type(question.vehicles) ~= "table" or type(question.skus) ~= "table" then return end
  if #question.vehicles < 1 or #question.vehicles > 5 or #question.skus < 1 or #question.skus > 200 then return end
  return question
end

-- Sends one call per product, in one pipeline.
local function ask(client, question, places)
  local products, by_name = {}, {}
  for index, wanted in ipairs(question.skus) do
    local product = by_name[wanted.spu]
    if not product then
      product = { spu = wanted.spu, indices = {}, skus = {} }
      by_name[wanted.spu] = product
      products[#products + 1] = product
    end
    product.indices[#product.indices + 1] = index
    product.skus[#product.skus + 1] = wanted.sku
  end
  client:init_pipeline(#products)
  for _, product in ipairs(products) do
    local arguments = { #places, unpack(places) }
    for _, sku in ipairs(product.skus) do arguments[#arguments + 1] = sku end
    client:evalsha(query_sha, 1, "weir:fit:{" .. product.spu .. "}", unpack(arguments))
  end
  return products, client:commit_pipeline()
end

function M.check()
  local question = read_question()
  if not question then return refuse(400, "invalid_body", "no question") end
  local client = connect()
  if not client then return refuse(503, "unavailable", "try again") end
  offsets = offsets or load_vehicles(client)
  local places = {}
  for i, vehicle in ipairs(question.vehicles) do
    places[i] = offsets[vehicle]
    if not places[i] then return refuse(404, "unknown_vehicle", "unknown") end
  end
  local products, replies = ask(client, question, places)
  if not replies then return refuse(503, "unavailable", "try again") end
  client:set_keepalive(300000, 1024)
  local parts = {}
  for number, product in ipairs(products) do
    local reply = replies[number]
    if type(reply) ~= "string" then return refuse(503, "unavailable", "try again") end
    for at, index in ipairs(product.indices) do
      local fits, words = reply:byte(at) - 64, {}
      if fits < 0 then return refuse(404, "unknown_sku", "unknown") end
      for vehicle = 1, #places do
        words[vehicle] = WORDS[fits % 2]
        fits = math.floor(fits / 2)
      end
      parts[index] = '{"sku":"' .. product.skus[at] .. '","answers":[' .. table.concat(words, ",") .. "]}"
    end
  end
  local body = '{"vehicles":["' .. table.concat(question.vehicles, '","') .. '"],"skus":[' .. table.concat(parts, ",") .. "]}"
  ngx.header["cache-control"] = "no-store"
  ngx.header["content-length"] = #body
  ngx.print(body)
end

return M
