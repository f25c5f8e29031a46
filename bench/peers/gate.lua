-- A sale's gate in nginx' Lua, in two variants. The lean one does as little as possible. The fair one does what Weir
-- does: it calls Weir's own script (several units, sums for audits, epochs, Redis' clock, idempotency keys), returns the
-- claim of a client that left, and counts each verdict. Each worker has its own tables of sales. Workers share the
-- sold-out flags, rate limits and counters in shared dictionaries.
local bit = require "bit"
local ffi = require "ffi"
local base64 = require "ngx.base64"
local redis = require "nginx.redis"

ffi.cdef [[
  typedef struct evp_md_st EVP_MD;
  const EVP_MD *EVP_sha256(void);
  unsigned char *ngx_hex_dump(unsigned char *, const unsigned char *, size_t);
  unsigned char *HMAC(const EVP_MD *, const void *, int, const unsigned char *, size_t, unsigned char *, unsigned int *);
]]

local HOUR_MS = 3600000
local SHARDS = 4
local sold_out, users, addresses, links = ngx.shared.sold_out, ngx.shared.users, ngx.shared.addresses, ngx.shared.links
local verdicts = ngx.shared.verdicts
local function clock_ms() return math.floor(ngx.now() * 1000 + 0.5) end
local M, redis_host, redis_port, secret = {}, nil, nil, nil
local lean_sha, claim_sha, release_sha

local sales = {
  open = { starts_at_ms = 0 },
  tokened = { starts_at_ms = 0, wants_token = true },
  later = { starts_at_ms = 4102444800000 },
  gone = { starts_at_ms = 0 },
}

-- The keys of each shard, created once.
for name, sale in pairs(sales) do
  sale.shards = {}
  for shard = 0, SHARDS - 1 do
    local key = function(kind) return "weir:{" .. name .. ":" .. shard .. "}:" .. kind end
    sale.shards[shard] = {
      stock = key "stock", claims = key "claims", pending = key "pending", sequence = key "sequence", epoch = key "epoch",
      sums = key "sums", bought = key "bought", blocked = key "blocked", attempt = key "attempt",
    }
  end
end

function M.start(host, port, lean, claim, release)
  redis_host, redis_port, lean_sha, claim_sha, release_sha = host, port, lean, claim, release
  secret = os.getenv("WEIR_TOKEN_SECRET")
  sold_out:set("gone", true)
end

local function answer(status, verdict, body, retry_after)
  ngx.status = status
  local header = ngx.header
  header["x-weir-verdict"] = verdict
  if verdict ~= "granted" and verdict ~= "granted_again" then header["cache-control"] = "no-store" end
  if retry_after then header["retry-after"] = retry_after end
  header["content-length"] = #body
  ngx.print(body)
end

local refusals = {}
local function refusal(verdict, status, message)
  local body = '{"type":"urn:weir:problem:' .. verdict .. '","status":' .. status .. ',"error":"' .. verdict .. '","message":"' .. message .. '"}'
  refusals[verdict] = function(retry_after)
    ngx.header["content-type"] = "application/problem+json"
    return answer(status, verdict, body, retry_after)
  end
end
refusal("unknown_sale", 404, "there is no such sale")
refusal("invalid_user", 401, "you are not signed in; please sign in and try again")
refusal("not_started", 403, "the sale has not started yet")
refusal("sold_out", 409, "sold out")
refusal("invalid_token", 403, "the order token is missing or invalid; please go to the checkout again")
refusal("rate_limited", 429, "too many requests; please wait a moment")
refusal("blocked", 403, "the risk check has blocked you from this sale")
refusal("cap_reached", 409, "you have already reached the limit per person")
refusal("unavailable", 503, "the outcome is unknown; please try again: with the same Idempotency-Key you never buy twice")

local digest, digest_len = ffi.new("unsigned char[32]"), ffi.new("unsigned int[1]")
local function tag_of(text)
  ffi.C.HMAC(ffi.C.EVP_sha256(), secret, #secret, text, #text, digest, digest_len)
  return ffi.string(digest, 32)
end
local function token_tag(payload) return tag_of("weir-order-token\n" .. payload) end

-- Adds the claim for the origin and its signature in hexadecimal digits. The signature prevents forged orders from
-- clients that reach the origin directly.
local hex = ffi.new("unsigned char[64]")
local function sign_claim(claim)
  ffi.C.ngx_hex_dump(hex, tag_of(claim), 32)
  ngx.req.set_header("x-weir-claim", claim)
  ngx.req.set_header("x-weir-claim-signature", "k1;" .. ffi.string(hex, 64))
end

local function token_counts(token, sale, user, now_ms)
  local payload, tag = string.match(token or "", "^t1%.([%w_-]+)%.([%w_-]+)$")
  local text = payload and base64.decode_base64url(payload)
  if not text or base64.decode_base64url(tag) ~= token_tag(text) then return false end
  local of_sale, issued_at_ms, of_user = string.match(text, "^v1;([^;]+);(%d+);(.+)$")
  local age_ms = now_ms - (tonumber(issued_at_ms) or 0)
  return of_sale == sale and of_user == user and age_ms >= 1000 and age_ms <= 600000
end

-- A token bucket (GCRA) in a shared dictionary, which stores when the bucket is full again. Returns the milliseconds to
-- wait, or nil. Two workers may take the last token at the same time, as with lua-resty-limit-req.
local function limit(dictionary, key, interval_ms, burst, now_ms)
  local full_at = dictionary:get(key)
  if not full_at or full_at < now_ms then full_at = now_ms end
  local next_at = full_at + interval_ms
  if next_at - now_ms > burst * interval_ms then return next_at - now_ms - burst * interval_ms end
  dictionary:set(key, next_at, (next_at - now_ms) / 1000 + 0.001)
end

-- Returns sale and user of an admitted request; nil if the request was answered.
local function admit(name, now_ms)
  local sale = sales[name]
  if not sale then return refusals.unknown_sale() end
  local user = ngx.var.http_x_user_id
  if not user or #user > 64 or string.find(user, "[^%w_-]") then return refusals.invalid_user() end
  if now_ms < sale.starts_at_ms then
    return refusals.not_started(string.format("%.0f", math.ceil((sale.starts_at_ms - now_ms) / 1000)))
  end
  if sold_out:get(name) then return refusals.sold_out() end
  return sale, user
end

-- Calls a script over a pooled connection.
local function call(sha, ...)
  local client = redis:new()
  client:set_timeout(250)
  if not client:connect(redis_host, redis_port) then return end
  local reply = client:evalsha(sha, ...)
  if not reply then return end
  client:set_keepalive(300000, 1024)
  return reply
end

-- Returns the reply's code, generation, deadline and delivery.
local function claim_lean(keys, user, now_ms)
  local reply = call(lean_sha, 5, keys.stock, keys.claims, keys.pending, keys.sequence, keys.blocked, now_ms, HOUR_MS, 1, user)
  if reply then return reply[1], reply[2], now_ms + HOUR_MS, 0 end
end

-- The same with crates/sale/lua/claim.lua, for a batch of one.
local function claim_fair(keys, user, bucket)
  local key = ngx.var.http_idempotency_key
  local reply
  if key then
    reply = call(claim_sha, 9, keys.stock, keys.epoch, keys.sequence, keys.sums, keys.claims, keys.pending, keys.bought,
      keys.blocked, keys.attempt, 1, HOUR_MS, 1, 1, "bk", bucket, user, string.sub(ngx.md5(key), 1, 16))
  else
    reply = call(claim_sha, 8, keys.stock, keys.epoch, keys.sequence, keys.sums, keys.claims, keys.pending, keys.bought,
      keys.blocked, 1, HOUR_MS, 1, 1, "b", bucket, user)
  end
  if not reply then return end
  local code, generation, _, deadline, delivery = string.match(reply, "^(%d+) ?(%d*) ?(%d*) ?(%d*) ?(%d*)$")
  return tonumber(code), generation, tonumber(deadline), delivery
end

-- Returns the delivery of a claim to a client that left.
local function release(keys, user, bucket, generation, delivery)
  call(release_sha, 6, keys.stock, keys.claims, keys.pending, keys.epoch, keys.sums, keys.bought,
    user, string.byte(bucket), generation, delivery)
end

-- Counts the answer's verdict.
function M.count() verdicts:incr(ngx.header["x-weir-verdict"] or "none", 1, 0) end

function M.order(name, is_limited, is_fair)
  local now_ms = clock_ms()
  local sale, user = admit(name, now_ms)
  if not sale then return end
  if sale.wants_token and not token_counts(ngx.var.http_x_weir_order_token, name, user, now_ms) then
    return refusals.invalid_token()
  end
  if is_limited then
    local wait_ms = limit(addresses, ngx.var.binary_remote_addr, 1, 2000, now_ms) or limit(users, user, 50, 40, now_ms)
    if wait_ms then return refusals.rate_limited(math.ceil(wait_ms / 1000)) end
  end
  local hash = ngx.crc32_short(user)
  local shard, bucket = hash % SHARDS, string.char(bit.band(bit.rshift(hash, 8), 255))
  local keys = sale.shards[shard]
  local has_left = false
  if is_fair then ngx.on_abort(function() has_left = true end) end
  local code, generation, deadline_ms, delivery
  if is_fair then
    code, generation, deadline_ms, delivery = claim_fair(keys, user, bucket)
  else
    code, generation, deadline_ms, delivery = claim_lean(keys, user, now_ms)
  end
  if code == 1 or code == 2 then
    if has_left then return release(keys, user, bucket, generation, delivery) end
    -- As if an origin followed.
    sign_claim(string.format("v1;%s;%d;%s;1;%.0f;%s", name, shard, generation, deadline_ms, user))
    return answer(200, code == 1 and "granted" or "granted_again", '{"order":"made"}')
  end
  if code == 4 then return refusals.sold_out() end
  if code == 3 then return refusals.cap_reached() end
  if code == 6 then return refusals.blocked() end
  return refusals.unavailable("1")
end

function M.checkout(name)
  local now_ms = clock_ms()
  local sale, user = admit(name, now_ms)
  if not sale then return end
  local payload = string.format("v1;%s;%.0f;%s", name, now_ms, user)
  local token = "t1." .. base64.encode_base64url(payload) .. "." .. base64.encode_base64url(token_tag(payload))
  answer(200, "token_minted", string.format('{"token":"%s","usable_at_ms":%.0f,"expires_at_ms":%.0f,"now_ms":%.0f}',
    token, now_ms + 1000, now_ms + 600000, now_ms))
end

function M.things()
  if limit(users, ngx.var.http_x_user_id, 0.001, 1000000, clock_ms()) then return refusals.rate_limited("1") end
  ngx.header["content-length"] = 0
end

-- Redirects a short link, from memory for up to a minute if `is_cached`.
function M.redirect(code, is_cached)
  local target = is_cached and links:get(code)
  if not target then
    local client = redis:new()
    client:set_timeout(250)
    if not client:connect(redis_host, redis_port) then return refusals.unavailable("1") end
    target = client:get("link:" .. code)
    if not target then return refusals.unavailable("1") end
    client:set_keepalive(300000, 1024)
    if target == ngx.null then return ngx.exit(404) end
    if is_cached then links:set(code, target, 60) end
  end
  ngx.status = 302
  local header = ngx.header
  header["location"] = target
  header["cache-control"] = "private, no-cache"
  header["content-length"] = 0
end

return M
