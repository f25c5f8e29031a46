-- Events to Kafka by lua-resty-kafka, each acknowledged by all replicas before the answer. A request's events go to each broker
-- in one piece; what is known of the brokers is shared by all requests of a worker.
local cjson = require("cjson.safe")
local producer_of = require("nginx.kafka.producer")

local _M = {}

local OPTIONS = {
  producer_type = "sync",
  required_acks = -1,
  api_version = 2,
  -- The buffer of asynchronous producers, which is not used.
  max_buffering = 1,
  batch_num = 32,
  -- Connections to brokers are kept, one for each request that may be under way.
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

-- With its length, as all answers that are compared.
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
  -- Sends what was added, too.
  local offset, why = producer:send(topic, events[1].customer, cjson.encode(events[1]))
  if not offset then return refuse(503, tostring(why)) end
  answer(202, { accepted = #events })
end

return _M
