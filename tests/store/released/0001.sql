BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE attempt (
	job_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	record TEXT NOT NULL, 
	phase TEXT NOT NULL GENERATED ALWAYS AS (json_extract(record, '$.phase')) VIRTUAL, 
	PRIMARY KEY (job_id, number), 
	FOREIGN KEY(job_id) REFERENCES job (id) ON DELETE CASCADE
);
INSERT INTO "attempt" VALUES(1,2,'{"job_id":1,"number":2,"phase":"releasing","cards":["GPU-b","GPU-a"],"claim_mib":9216,"charge_mib":10240,"marker":"ffffffffffffffffffffffffffffffff","boot_id":"2c1f1b52-0000-4000-8000-000000000000","started_at":101,"started_unix":1700000010,"nominal_mib":20480,"held_back_mib":10240,"ended_unix":1700000500,"exit_status":3,"exit_signal":11,"outcome":"killed by SIGSEGV, not by gpuqueue","resumed_from":"/home/anna/out/checkpoint-900","peak_mib":9001,"over_samples":1,"flagged":"pid 77 survives SIGKILL"}');
INSERT INTO "attempt" VALUES(2,2,'{"job_id":2,"number":2,"phase":"ended","cards":["GPU-b","GPU-a"],"claim_mib":9216,"charge_mib":10240,"marker":"ffffffffffffffffffffffffffffffff","boot_id":"2c1f1b52-0000-4000-8000-000000000000","started_at":101,"started_unix":1700000010,"nominal_mib":20480,"held_back_mib":10240,"ended_unix":1700000500,"exit_status":3,"exit_signal":11,"outcome":"killed by SIGSEGV, not by gpuqueue","resumed_from":"/home/anna/out/checkpoint-900","peak_mib":9001,"over_samples":1,"flagged":"pid 77 survives SIGKILL"}');
CREATE TABLE clock (
	id INTEGER NOT NULL, 
	engine_second INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "clock" VALUES(1,86400);
CREATE TABLE drained (
	uuid TEXT NOT NULL, 
	why TEXT NOT NULL, 
	PRIMARY KEY (uuid)
);
INSERT INTO "drained" VALUES('GPU-a','its fan is loud');
CREATE TABLE event (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	at_unix INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	job_id INTEGER, 
	actor TEXT NOT NULL, 
	text TEXT NOT NULL
);
INSERT INTO "event" VALUES(1,1700000000,'quota',NULL,'root','anna: train 20.0 GiB');
INSERT INTO "event" VALUES(2,1700000010,'started',1,'gpuqueue','job 1 starts');
CREATE TABLE job (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	idempotency_key TEXT NOT NULL, 
	record TEXT NOT NULL, 
	uid INTEGER NOT NULL GENERATED ALWAYS AS (json_extract(record, '$.uid')) VIRTUAL, 
	user TEXT NOT NULL GENERATED ALWAYS AS (json_extract(record, '$.user')) VIRTUAL, 
	state TEXT NOT NULL GENERATED ALWAYS AS (json_extract(record, '$.state')) VIRTUAL, 
	ended_unix INTEGER GENERATED ALWAYS AS (json_extract(record, '$.ended_unix')) VIRTUAL
);
INSERT INTO "job" VALUES(1,'3f9c','{"user":"anna","uid":1000,"account":"vision","ask":{"job_class":"light","claim_mib":9216,"cards":1,"gpu_type":"A100","gpu_indexes":[1,0],"exclusive":true,"interactive":true,"borrow":false,"grow":true,"restart":"always","limit_s":7200,"grace_s":60,"stop_signal":"SIGUSR1","checkpoint_dir":"/home/anna/out"},"state":"stopping","state_since":500,"queued_at":90,"submitted_unix":1700000000,"claim_mib":10240,"name":"fine-tune \udcff\n\u2019s","priority":-3,"attempt":2,"ran_s":399,"extra_s":60,"idle_exempt_until":900,"not_before":450,"held":true,"requeue_rank":-1,"stop":{"reason":{"code":"idle","fields":{"idle_s":1800,"gpu_percent":"0.4","cpu_cores":"0.1","io":"1 KiB/s"}},"actor":"gpuqueue","after":"requeue","grace_s":60,"asked_at":499,"signalled":true,"beneficiary":7,"kept_mib":9216},"restarts":{"total":5,"failures_in_row":2,"recent_at":[100,300],"as_victim":1,"newest_step":1000,"failures_from":{"/home/anna/out/checkpoint-900":2},"used_expandable_segments":true,"grown":true},"reason":{"code":"signalled","fields":{"signal":"SIGSEGV"}},"exit_status":3,"exit_signal":11,"resumed_from":"/home/anna/out/checkpoint-900","peak_mib":9001,"started_unix":1700000010,"ended_unix":1700000500}');
INSERT INTO "job" VALUES(2,'ended','{"user":"anna","uid":1000,"account":"vision","ask":{"job_class":"light","claim_mib":9216,"cards":1,"gpu_type":"A100","gpu_indexes":[1,0],"exclusive":true,"interactive":true,"borrow":false,"grow":true,"restart":"always","limit_s":7200,"grace_s":60,"stop_signal":"SIGUSR1","checkpoint_dir":"/home/anna/out"},"state":"succeeded","state_since":500,"queued_at":90,"submitted_unix":1700000000,"claim_mib":10240,"name":"fine-tune \udcff\n\u2019s","priority":-3,"attempt":2,"ran_s":399,"extra_s":60,"idle_exempt_until":900,"not_before":450,"held":true,"requeue_rank":-1,"stop":null,"restarts":{"total":5,"failures_in_row":2,"recent_at":[100,300],"as_victim":1,"newest_step":1000,"failures_from":{"/home/anna/out/checkpoint-900":2},"used_expandable_segments":true,"grown":true},"reason":{"code":"signalled","fields":{"signal":"SIGSEGV"}},"exit_status":3,"exit_signal":11,"resumed_from":"/home/anna/out/checkpoint-900","peak_mib":9001,"started_unix":1700000010,"ended_unix":1700000600}');
CREATE TABLE quota (
	account TEXT NOT NULL, 
	train_mib INTEGER, 
	light_mib INTEGER, 
	PRIMARY KEY (account)
);
INSERT INTO "quota" VALUES('anna',20480,NULL);
INSERT INTO "quota" VALUES('ben',NULL,0);
CREATE TABLE request (
	job_id INTEGER NOT NULL, 
	record TEXT NOT NULL, 
	PRIMARY KEY (job_id), 
	FOREIGN KEY(job_id) REFERENCES job (id) ON DELETE CASCADE
);
INSERT INTO "request" VALUES(1,'{"idempotency_key":"3f9c","vram_mib":9216,"command":["--epochs","3","caf\udce9"],"cwd":"/home/anna","env":{"PATH":"/usr/bin","LATIN1":"\udce9","EMPTY":"","LINES":"a\nb\u0000c"},"script":"#!/bin/sh\necho \u00fc\n","script_name":"train.sh","umask":63,"name":"fine-tune","job_class":"light","gpus":2,"gpu_type":"A100","gpu_indexes":[1,0],"exclusive":true,"time_s":7200,"signal":"SIGUSR1","grace_s":60,"mem_mib":4096,"cpus":4,"interactive":true,"borrow":false,"restart":"always","checkpoint_dir":"/home/anna/out","checkpoint_command":"newest","resume":"latest","resume_arg":"--resume={checkpoint}","grow":true,"account":"vision","as_user":"anna"}');
INSERT INTO "request" VALUES(2,'{"idempotency_key":"ended","vram_mib":9216,"command":["--epochs","3","caf\udce9"],"cwd":"/home/anna","env":{"PATH":"/usr/bin","LATIN1":"\udce9","EMPTY":"","LINES":"a\nb\u0000c"},"script":"#!/bin/sh\necho \u00fc\n","script_name":"train.sh","umask":63,"name":"fine-tune","job_class":"light","gpus":2,"gpu_type":"A100","gpu_indexes":[1,0],"exclusive":true,"time_s":7200,"signal":"SIGUSR1","grace_s":60,"mem_mib":4096,"cpus":4,"interactive":true,"borrow":false,"restart":"always","checkpoint_dir":"/home/anna/out","checkpoint_command":"newest","resume":"latest","resume_arg":"--resume={checkpoint}","grow":true,"account":"vision","as_user":"anna"}');
CREATE TABLE usage (
	account TEXT NOT NULL, 
	mib_seconds INTEGER NOT NULL, 
	decayed_at INTEGER NOT NULL, 
	PRIMARY KEY (account)
);
INSERT INTO "usage" VALUES('anna',1099511627776,77);
CREATE INDEX job_by_end ON job (ended_unix);
CREATE UNIQUE INDEX job_by_key ON job (uid, idempotency_key);
CREATE INDEX job_by_state ON job (state);
CREATE INDEX attempt_by_phase ON attempt (phase);
CREATE INDEX event_by_job ON event (job_id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('job',3);
INSERT INTO "sqlite_sequence" VALUES('event',2);
COMMIT;
