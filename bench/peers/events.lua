-- Events to Kafka with lua-resty-kafka. All replicas acknowledge each event before the response. Each broker gets a
-- request's events in one message; all requests of a worker share the metadata of the brokers.
local cjson = require("cjson.safe")
local producer_of = require("nginx.kafka.producer")

local _M = {}

local OPTIONS = {
  producer_type = "sync",
  required_acks = -1,
  api_version = 2,
  -- The buffer of asynchronous producers, which this producer does not use.
  max_buffering = 1,
  batch_num = 32,
  -- Idle connections to brokers: one for each concurrent request.
  keepalive_size = 1024,
}

local brokers, client

local function read(servers)
  local all = {}
  for host, port in string.gmatch(servers, "([^:,]+):(%d+)") do
    all[#all + 1] = { host = host, port = tonumber(port) }
  end
  return all
end

-- Sends a response with its length, like all compared servers.
local function answer(status, document)
  local body = cjson.encode(document)
  ngx.status = status
  ngx.header.content_length = #body
  ngx.print(body)
end

local function refuse(status, why) answer(status, { error = why }) end

local function is_event(event)
  return type(event) == "table" and type(event.id) == "string" and type(event.type) == "string"
end

function _M.collect(servers, topic)
  brokers = brokers or read(servers)
  ngx.req.read_body()
  local events = cjson.decode(ngx.req.get_body_data() or "")
  if type(events) ~= "table" or #events == 0 then return refuse(400, "no events") end
  for _, event in ipairs(events) do
    if not is_event(event) then return refuse(422, "an event lacks id or type") end
  end
  local producer = producer_of:new(brokers, OPTIONS)
  client = client or producer.client
  producer.client = client
  local known, partitions = client:fetch_metadata(topic)
  if not known then return refuse(503, tostring(partitions)) end
  for i = 2, #events do
    local event = events[i]
    local partition = producer.partitioner(event.customer, partitions.num, i)
    producer.sendbuffer:add(topic, partition, event.customer, cjson.encode(event))
  end
  -- Also sends the buffered events.
  local offset, why = producer:send(topic, events[1].customer, cjson.encode(events[1]))
  if not offset then return refuse(503, tostring(why)) end
  answer(202, { accepted = #events })
end

return _M
