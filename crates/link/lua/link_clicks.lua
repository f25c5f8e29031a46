-- link_clicks: a batch of clicks goes to the statistics.
--
-- KEYS: 1 the stream
-- ARGV: 1 about how many batches to keep, 2 the batch's id, 3 its payload
--
-- Returns 1. A batch that is sent twice stands in the stream twice: whoever reads it counts an id once.

redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'b', ARGV[2], 'd', ARGV[3])
return 1
