from __future__ import annotations
import json, time, threading, sys, http.client, random, string
from pathlib import Path
from support.api_process import *  # noqa
from support.api_process import own_api
sys.path.insert(0,'/tmp/rv6')
def post(api, doc, raw=None):
    c=http.client.HTTPConnection("127.0.0.1",api.port,timeout=300)
    t=time.time(); c.request("POST","/api/v1/versions",raw or json.dumps(doc),{"Authorization":f"Bearer {api.token}","Content-Type":"application/json"})
    r=c.getresponse(); b=r.read(); c.close(); return r.status, b, round(time.time()-t,2)
def rss(pid):
    tot=[]
    import subprocess
    for p in Path('/proc').glob('[0-9]*'):
        try:
            s=(p/'status').read_text()
        except OSError: continue
        if f'PPid:\t{pid}\n' in s or p.name==str(pid):
            tot.append(int([l for l in s.splitlines() if l.startswith('VmHWM')][0].split()[1])>>10)
    return tot
def test_a(own_api):
    api=own_api
    from pt2hub.archive.writing import write_zip, ZipEncoder
    from pt2hub.archive.reading import Archive
    members=[]
    with open('/tmp/rv6/program','rb') as f:
        a=Archive(f)
        for e in a.entries: members.append((e.name,a.read(e.name)))
    w=api.registry.blob(Path('/tmp/rv6/weights').read_bytes()).digest
    def prog(graph):
        mem=[(n,graph if n.endswith('model.json') else d) for n,d in members]
        write_zip(Path('/tmp/rv6/h.zip'),mem); return api.registry.blob(Path('/tmp/rv6/h.zip').read_bytes()).digest
    g=[d for n,d in members if n.endswith('model.json')][0]
    def spec(**k):
        return {"model":"a/b","source":{"program":None},"weights":w,"inputs":[{"name":"x","shape":["b",3],"generate":{"normal":{}}},{"name":"d.k[0]","shape":["b",2],"generate":{"normal":{}}}],"dims":{"b":{"min":4,"max":32,"example":8,"multiple_of":4}},"fixed":{"n":2,"flag":True},"targets":["torch2.13-cpu-x86_64_v4"],**k}
    print('base',rss(api.pid))
    print(post(api,spec(source={"program":prog(g)}))[::2])
    unit=b'{"a":["123456789012345"]},'
    big=g[:-1]+b', "pad":['+unit*((60<<20)//len(unit))+b'0]}'
    d=prog(big)
    print('big',post(api,spec(source={"program":d},model="a/c"))[::2],rss(api.pid))
    out=[]
    ts=[threading.Thread(target=lambda:out.append(post(api,spec(source={"program":d},model="a/d"))[::2])) for _ in range(4)]
    [t.start() for t in ts]
    lat=[]
    while any(t.is_alive() for t in ts):
        t0=time.time(); api.ask("GET","/healthz"); lat.append(time.time()-t0); time.sleep(.2)
    print('4 at once',out,'health max',max(lat),rss(api.pid))
    unit=b'[],'
    print('dense',post(api,spec(source={"program":prog(g[:-1]+b', "pad":['+unit*(1<<20)+b'0]}')}))[:3])
    # code: near
    word='ab'*95
    r=random.Random(0)
    names=set()
    while len(names)<9999: l=list(word); r.shuffle(l); names.add(''.join(l)+'.py')
    write_zip(Path('/tmp/rv6/c.zip'),[(n,b'') for n in sorted(names)])
    c=api.registry.blob(Path('/tmp/rv6/c.zip').read_bytes()).digest
    for e in (word,'ab'*30):
        s,b,t=post(api,spec(source={"code":c,"entry":e[:190]+":x"},weights=None)); print('near',s,t,len(b))
    s,b,t=post(api,{**spec(source={"program":d}),**{f"z{i}":1 for i in range(20000)}}); print('unknown',s,t,len(b))
    s,b,t=post(api,None,b'{"a":'*60000+b'1'+b'}'*60000); print('deep',s,t,b[:200])
    for src in ({"factory":"transformers:BertModel","config":{"a":[[[]]]*1000}},{"code":w,"entry":"a:b"},{"program":w},{"program":c},{"code":d,"entry":"a:b"},{"code":w,"entry":"a:b","requirements":["torch<"+"1"*190]},{"code":c,"entry":"a:b","requirements":["a"+" "*100]},):
        s,b,t=post(api,spec(source=src)); print('src',str(src)[:60],s,t,b[:300])
    # safetensors
    import struct
    def st(doc): 
        h=json.dumps(doc).encode(); return api.registry.blob(struct.pack('<Q',len(h))+h).digest
    p=prog(g)
    for doc in ({"a"*100000+".b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}},{"\ud800":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}},{"x":{"dtype":"F32","shape":[0]+[10**4000]*60,"data_offsets":[0,0]}},{"l.weight":{"dtype":"F32","shape":[0]+[10**4299]*60,"data_offsets":[0,0]}},{f"{'a.'*50000}{i}":{"dtype":"F32","shape":[0],"data_offsets":[0,0]} for i in range(50)}):
        s,b,t=post(api,spec(source={"program":p},weights=st(doc))); print('st',s,t,len(b),b[:160])
    print(rss(api.pid), list((api.folder/'tmp').iterdir()))
    print('LOG',api.log[-3000:])
    assert 0
