-- Removes every trace of a session that begin_close has claimed, and gives its lane back.
-- of a session
-- key closed, heirs, snapshot_bytes
-- arg claim
-- arg history_length: the final one
-- arg closed_ms: for how long it is remembered, if it lived for one answer
-- out deleted
-- out gone: another router claimed it after this one's lease had lapsed
if redis.call('HGET', key.operation, 'claim') ~= arg.claim then
  return 'gone'
end
charge(arg.history_length, now_ms())
give_back()
local record = redis.call('HMGET', key.session, 'ephemeral', 'tenant')
if record[1] == '1' then
  redis.call('SET', key.closed, arg.history_length .. ' ' .. (record[2] or ''), 'PX', arg.closed_ms)
end
count_snapshots(redis.call('HGET', key.session, 'snapshots'), '')
disinherit('')
forget_tags()  -- an older router that claimed it has left them
be_busy()
leave_lists()
redis.call('DEL', key.session, key.operation, key.journal)
leave_pool(arg.session_id)
return 'deleted'
