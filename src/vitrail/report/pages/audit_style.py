"""What audit pages add to the look of explanation pages: verdicts, the matrix, picture rows."""

from __future__ import annotations

AUDIT_STYLE = """
.verdict{display:inline-flex;align-items:center;gap:7px;font-weight:650;white-space:nowrap}
.verdict svg{width:16px;height:16px;flex:none}
.biased{color:var(--bad)}.suspect{color:var(--warn)}.clear{color:var(--fine)}
.facts{display:grid;grid-template-columns:minmax(110px,max-content) 1fr;
gap:8px 20px;margin:16px 0 0}
.facts dt{color:var(--soft)}.facts dd{margin:0;overflow-wrap:anywhere}
.headline{font-size:26px;font-weight:650;line-height:1.2;margin:0;display:flex;gap:12px;
align-items:center;overflow-wrap:anywhere}
.headline svg{width:28px;height:28px;flex:none}
table.audit td,table.audit th{padding:7px 8px}
table.audit td{font-variant-numeric:tabular-nums;font-size:15px}
table.audit td.name{overflow-wrap:break-word;max-width:260px;font-weight:600}
table.audit td.place{min-width:130px;font-size:14px}
.pair{white-space:nowrap;display:block}
.pair span{color:var(--soft);font-size:13px;display:inline-block;min-width:3.4em}
table.matrix{width:auto}
table.matrix td{text-align:center;padding:6px 10px;font-variant-numeric:tabular-nums}
table.matrix th{text-align:center}table.matrix th[scope=row]{text-align:left;
vertical-align:middle}
table.matrix td.origin{outline:3px solid var(--bad);outline-offset:-3px;border-radius:6px}
table.matrix small{display:block;color:var(--bad);font-weight:650}
.gap{width:260px;height:26px;display:block}
.gap line{stroke:var(--ink);stroke-width:2}.gap circle{fill:var(--ink)}
.gap .zero{stroke:var(--soft);stroke-width:1;stroke-dasharray:3 3}
.looks{display:grid;grid-template-columns:repeat(3,minmax(0,1fr));gap:18px;margin:14px 0}
figure{margin:0;break-inside:avoid}
figure .picture{width:100%;max-height:none;image-rendering:auto}
figcaption{font-size:14px;line-height:1.4;margin-top:6px}
figcaption b{font-weight:650}
.said{display:flex;justify-content:space-between;gap:8px;border-top:1px solid var(--line);
margin-top:4px;padding-top:4px;font-variant-numeric:tabular-nums}
.said span:first-child{color:var(--soft)}
.canvas{fill:var(--quiet);stroke:var(--line)}
.faint{fill:var(--against);fill-opacity:.14;stroke:var(--against);stroke-opacity:.5;
vector-effect:non-scaling-stroke}
.readings{display:grid;grid-template-columns:1fr 1fr;gap:16px;margin:14px 0}
.readings div{border:1px solid var(--line);border-radius:8px;padding:12px 14px}
.readings .yes{border:2px solid var(--ink)}
.readings h4{margin:0 0 4px;font-size:15px}
.hide{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.key{display:flex;flex-wrap:wrap;gap:8px 22px;margin:10px 0 0;font-size:14px}
@media screen and (max-width:720px){.looks,.readings{grid-template-columns:1fr}
.facts{grid-template-columns:1fr;gap:2px}.facts dd{margin-bottom:8px}}
@media print{table.audit td,table.audit td.place{font-size:8.5pt}.pair span{font-size:8pt}
.looks{gap:8px}figcaption{font-size:8pt}.headline{font-size:18pt}
section{break-inside:auto}figure .picture{max-height:150px}}
"""
