-- link_clicks: appends a batch of clicks to the statistics' stream.
--
-- KEYS: 1 stream
-- ARGV: 1 approximate maximum of batches in the stream, 2 the batch's ID, 3 its payload
--
-- Returns 1. A batch that is sent twice is in the stream twice. Readers count each ID once.

redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'b', ARGV[2], 'd', ARGV[3])
return 1
