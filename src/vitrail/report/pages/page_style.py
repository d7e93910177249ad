"""How the pages of single commands look, on screens and on paper, in the colors of the report."""

from __future__ import annotations

from vitrail.report.charts.palette import make_css_variables

STYLE = (
    make_css_variables()
    + """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
header,main{max-width:1080px;margin:0 auto;padding:0 24px}
header{padding-top:0;padding-bottom:8px}
.glass{height:8px;margin:0 -24px 28px;border-radius:0 0 6px 6px;background:linear-gradient(90deg,
#0072b2 0 17%,#1d2330 17% 17.4%,#56b4e9 17.4% 31%,#1d2330 31% 31.4%,#009e73 31.4% 49%,
#1d2330 49% 49.4%,#f0e442 49.4% 62%,#1d2330 62% 62.4%,#e69f00 62.4% 78%,#1d2330 78% 78.4%,
#d55e00 78.4% 100%)}
h1{font-size:30px;line-height:1.2;margin:0 0 6px;letter-spacing:-.015em}
h2{font-size:22px;margin:0;line-height:1.25;overflow-wrap:anywhere}
h3{font-size:18px;margin:36px 0 4px;overflow-wrap:anywhere}
p{margin:4px 0}
.soft,small{color:var(--soft)}
small{font-size:13px;line-height:1.4;display:block}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:24px;
margin:20px 0}
.summary{display:grid;grid-template-columns:minmax(200px,280px) 1fr;gap:28px;align-items:start}
.answer{font-size:26px;font-weight:650;line-height:1.2;margin:2px 0 14px;overflow-wrap:anywhere}
.chances{display:grid;grid-template-columns:minmax(0,auto) minmax(80px,1fr) 4.2em;gap:6px 12px;
align-items:center;max-width:620px;margin:0}
.chances dt{overflow-wrap:anywhere}
.chances dd{margin:0;text-align:right;font-variant-numeric:tabular-nums}
.track{height:10px;border-radius:5px;background:var(--quiet);overflow:hidden}
.track i{display:block;height:100%;background:var(--for);border-radius:5px}
.store{position:absolute;width:0;height:0}
.picture{display:block;width:100%;max-height:320px;border-radius:6px}
.box,.edge{fill:none;vector-effect:non-scaling-stroke}
.edge{stroke:#000;stroke-opacity:.75;stroke-width:5px}
.box{stroke:var(--mark);stroke-width:2.5px}
.shade{fill:#000;fill-opacity:.38}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;margin-top:8px}
th{font-size:13px;font-weight:600;color:var(--soft);text-align:left;padding:6px 8px;
border-bottom:1px solid var(--line);vertical-align:bottom}
td{padding:10px 8px;border-bottom:1px solid var(--line);vertical-align:middle}
td.see{width:148px;min-width:116px}
td.see .picture{width:132px;height:auto;max-height:176px}
td.what{min-width:150px;overflow-wrap:anywhere}
td.sum{min-width:232px;font-variant-numeric:tabular-nums}
td.none{font-size:13px;color:var(--soft);line-height:1.35}
.formula{display:flex;justify-content:space-between;gap:8px;white-space:nowrap}
.formula b{font-weight:650}
tfoot td{border-bottom:0;border-top:2px solid var(--ink);font-weight:650}
tr.other td{color:var(--soft)}
.bar{position:relative;height:9px;margin-top:6px;border-radius:5px;background:
linear-gradient(var(--soft),var(--soft)) 50% 0/1px 100% no-repeat,var(--quiet)}
.bar i{position:absolute;top:0;bottom:0}
.bar .for{left:50%;background:var(--for);border-radius:0 5px 5px 0}
.bar .against{right:50%;background:var(--against);border-radius:5px 0 0 5px}
.note{border-left:4px solid var(--against);padding:8px 14px;background:var(--quiet);
border-radius:0 6px 6px 0;margin:14px 0}
.index{columns:2;column-gap:32px;margin:0;padding:0;list-style:none}
.index li{break-inside:avoid;display:flex;justify-content:space-between;gap:12px;padding:4px 0;
border-bottom:1px solid var(--line)}
.index a{flex:none;max-width:60%;overflow-wrap:anywhere}
.index span{text-align:right}
a{color:var(--for)}
.units{display:grid;grid-template-columns:repeat(auto-fill,minmax(178px,1fr));gap:16px;
margin:14px 0 0;padding:0;list-style:none}
.units li{border:1px solid var(--line);border-radius:8px;padding:10px;break-inside:avoid}
.units .picture,.units .blank{width:100%;aspect-ratio:1;height:auto}
.blank{display:flex;align-items:center;justify-content:center;text-align:center;padding:12px;
border:1px dashed var(--line);border-radius:6px;font-size:13px;color:var(--soft);line-height:1.35}
.units .masked,.masked .picture{opacity:.45}
.units h4{margin:8px 0 2px;font-size:15px}
.tags{display:flex;flex-wrap:wrap;gap:5px;margin-top:6px}
.tag{font-size:12px;padding:1px 8px;border-radius:9px;background:var(--quiet);color:var(--ink);
border:1px solid var(--line)}
.tag.bad{border-color:var(--against)}
@media screen and (max-width:720px){.summary{grid-template-columns:1fr}.index{columns:1}
header,main{padding:0 12px}.glass{margin:0 -12px 20px}section{padding:14px}}
@media print{body{font-size:9.5pt;background:#fff}section{border:0;padding:0}
header,main{padding:0}.wide{overflow:visible}td{padding:6px 5px}td.see{width:106px;min-width:0}
td.see .picture{width:96px}td.what{min-width:110px}td.sum{min-width:178px}
th,small,td.none{font-size:8pt}.units{grid-template-columns:repeat(5,1fr);gap:8px}
.glass{margin:0 0 16px}
tr,.summary,.units li{break-inside:avoid}h3{break-after:avoid}thead{display:table-header-group}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""
)
