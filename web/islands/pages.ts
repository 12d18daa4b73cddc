/** What every page has: times in the reader's zone, buttons that copy, search as you type. */

import { showTimes } from "./times";
import { enableCopying } from "./copying";
import { enableSearch } from "./search";

showTimes(document);
enableCopying(document);
enableSearch(document);
