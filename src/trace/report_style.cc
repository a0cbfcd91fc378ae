// The style of the report page.
#include "trace/page.h"

namespace ecphory::trace {

const std::string_view kReportStyle = R"css(
section { margin-top: 34px; border-top: 1px solid var(--line); padding-top: 16px; }
figure { margin: 8px 0 14px; }
figcaption { font-size: 13px; color: var(--soft); margin-bottom: 2px; }
.plot { display: block; max-width: 100%; height: auto; }
.plot text { font-size: 11px; fill: var(--soft); }
.plot path.grid { stroke: var(--line); stroke-width: 1; }
.grid { display: flex; flex-wrap: wrap; gap: 6px 28px; }
.key { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 18px;
  margin: 0 0 8px; padding: 0; font-size: 13px; }
.key i { display: inline-block; width: 11px; height: 11px; border-radius: 2px;
  margin-right: 6px; }
.means { font-size: 12px; margin: 2px 4px; max-width: 192px; }
.pair { display: flex; flex-wrap: wrap; gap: 0 48px; }
.pair > div { flex: 1 1 440px; min-width: 0; }
.pair table { width: 100%; }
.ctx { white-space: pre-wrap; overflow-wrap: anywhere; }
.ctx span { color: var(--soft); }
table { display: block; overflow-x: auto; max-width: 100%; }
)css";

}  // namespace ecphory::trace
