// The views of links, which the console's shell loads when one is opened.

import { dashboard as dashboardOf } from "./dashboard.js";
import { detail as detailOf } from "./detail.js";
import { domains as domainsOf } from "./domains.js";
import { home as homeOf } from "./home.js";
import { importer as importerOf } from "./import.js";
import { templates as templatesOf } from "./templates.js";

export const home = async (desk) => ["Links", await homeOf(desk)];
export const importer = async (desk) => ["Import links", await importerOf(desk)];
export const dashboard = async (desk, query) => ["Link statistics", await dashboardOf(desk, query)];
export const templates = async (desk) => ["UTM templates", await templatesOf(desk)];
export const domains = async (desk, id) => [id ? `Domain ${id}` : "Domains", await domainsOf(desk, id ?? null)];
export const detail = async (desk, domain, code, tab) => [code, await detailOf(desk, { domain, code }, tab)];
